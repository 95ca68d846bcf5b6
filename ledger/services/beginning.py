"""How a new step begins: what the gate says of it, whether people are asked, its first state."""

from __future__ import annotations

import json
from typing import Any
from uuid import UUID

from ledger.gate import Verdict
from ledger.rows import SagaRow, Variant
from ledger.services.alternatives import judged as judged_alternatives
from ledger.services.asking import denial, judge_variant
from ledger.services.preparing import Prepared
from ledger.states import STEP_FINISHED, Direction, StepState


def judged(
    saga: SagaRow, step: UUID, prepared: Prepared, why_ask: str
) -> tuple[Verdict, list[Variant]]:
    """The gate's verdicts, taken once: on the step itself, and on each of its alternatives."""
    view = {
        "id": str(step),
        "step_id": prepared.proposal.step_id,
        "position": saga.step_count + 1,
    }
    forward = Direction.FORWARD
    verdict = judge_variant(saga, view, prepared.variant, forward, must_ask=why_ask)
    return verdict, judged_alternatives(saga, view, prepared.alternatives, why_ask)


def must_ask(prepared: Prepared, duplicate: Any | None, reopened: Any | None) -> str:
    """Why people are asked whatever the gate says; '' when they are not."""
    why = []
    if reopened is not None:
        why.append(
            f"A person rejected exactly this as step {reopened.step_id!r}, and it was reopened."
        )
    if duplicate is not None:
        why.append(f"It looks like a duplicate of step {duplicate.step_id!r} ({duplicate.state}).")
    if prepared.proposal.repeat_of is not None:
        why.append(f"The agent says that it repeats step {prepared.proposal.repeat_of} on purpose.")
    return " ".join(why)


def first_state(verdict: Verdict, before: Any | None) -> StepState:
    """`before`: the last step of the saga that nobody rejected, for which this one waits."""
    if verdict.kind == "deny":
        return StepState.REJECTED
    if verdict.kind == "ask":
        return StepState.AWAITING_APPROVAL
    must_wait = before is not None and before.state not in STEP_FINISHED
    return StepState.WAITING if must_wait else StepState.QUEUED


def denial_of(verdict: Verdict) -> str:
    """The error of a step that the policy denies, as JSON text."""
    return json.dumps({"code": "denied", "detail": denial(verdict)})
