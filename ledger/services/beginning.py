"""How a new step begins: what the gate says of it, whether people are asked, its first state."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from ledger.gate import Verdict
from ledger.models.fields import uuid7
from ledger.rows import SagaRow, Variant
from ledger.services.alternatives import judged as judged_alternatives
from ledger.services.asking import denial, judge_variant
from ledger.services.preparing import Prepared
from ledger.states import STEP_FINISHED, Direction, StepState


@dataclass(frozen=True, slots=True)
class Draft:
    """A new step before it is known what it is related to: the gate's verdict when nobody need
    be asked, and the columns that hold in any case."""

    step: UUID
    view: Mapping[str, Any]
    verdict: Verdict
    columns: dict[str, Any]


def drafted(saga: SagaRow, prepared: Prepared) -> Draft:
    """Needs nothing but the locked saga, so that it is put together while Postgres looks."""
    step = uuid7()
    view = {
        "id": str(step),
        "step_id": prepared.proposal.step_id,
        "position": saga.step_count + 1,
    }
    verdict = judge_variant(saga, view, prepared.variant, Direction.FORWARD)
    return Draft(step, view, verdict, prepared.columns() | {"id": step, "saga": saga.id})


def judged(
    saga: SagaRow, draft: Draft, prepared: Prepared, why_ask: str
) -> tuple[Verdict, list[Variant]]:
    """The gate's verdicts, taken once: on the step itself, and on each of its alternatives."""
    verdict, view = draft.verdict, draft.view
    if why_ask:
        verdict = judge_variant(saga, view, prepared.variant, Direction.FORWARD, must_ask=why_ask)
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
