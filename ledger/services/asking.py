"""Putting a step to the gate: the question, what a yes is bound to, and the request itself."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from uuid import UUID

from ledger import keys
from ledger.gate import Held, Question, Verdict, gate
from ledger.rows import SagaRow, StepRow, Variant
from ledger.services.unit import Unit
from ledger.states import Direction, StepState


def judge(saga: SagaRow, step: StepRow, direction: Direction, *, must_ask: str = "") -> Verdict:
    """The gate's verdict on what a step runs now."""
    return judge_variant(saga, step.view(), step.variant, direction, must_ask=must_ask)


def judge_variant(
    saga: SagaRow,
    step: Mapping[str, Any],
    variant: Variant,
    direction: Direction,
    *,
    must_ask: str = "",
) -> Verdict:
    """The gate's verdict on one thing that a step may run; `step` as `StepRow.view` has it."""
    return gate().judge(
        Question(
            direction=direction,
            tool=variant.tool,
            tool_version=variant.tool_version,
            tier=variant.tier,
            blast_radius=variant.blast_radius,
            args=variant.args,
            agent=saga.agent,
            saga=saga.view(),
            step=step,
            must_ask=must_ask,
        )
    )


def denial(verdict: Verdict) -> str:
    """Why a step that the policy denies does not run."""
    return f"The rule {verdict.rule!r} of the policy denies it."


def ask(
    unit: Unit,
    saga: SagaRow,
    step: StepRow,
    direction: Direction,
    verdict: Verdict,
    *,
    why: str = "",
) -> UUID:
    """Open a request to people, in this transaction; an older one is superseded.

    The entry holds what people are shown, so that the ledger alone can tell it from what ran.
    """
    unit.flush()
    bound = held(saga, step, direction, why=why)
    request = gate().open(bound, verdict)
    unit.entry(
        saga,
        "approval.requested",
        step,
        direction=direction,
        approval=str(request),
        tool_version=bound.tool_version,
        **runs(step, direction),
        rule=verdict.rule,
        why=why,
    )
    return request


def held(saga: SagaRow, step: StepRow, direction: Direction, *, why: str = "") -> Held:
    """What a request about this direction of a step is bound to."""
    variant = step.variant
    return Held(
        step=step.id,
        saga=saga.id,
        direction=direction,
        args=variant.args,
        args_digest=variant.fingerprint,
        tool=variant.tool,
        tool_version=variant.tool_version,
        tool_digest=variant.tool_digest,
        idempotency_key=key_for(step, direction),
        why=why,
    )


def runs(step: StepRow, direction: Direction) -> dict[str, Any]:
    """What a step runs, as its entries tell it."""
    variant = step.variant
    return {
        "tool": variant.tool,
        "tool_digest": variant.tool_digest,
        "tier": variant.tier,
        "blast_radius": variant.blast_radius,
        "args": variant.args,
        "args_digest": variant.fingerprint,
        "idempotency_key": key_for(step, direction),
    }


def key_for(step: StepRow, direction: Direction, choice: int | None = None) -> str:
    """The downstream key of one direction of what the step runs now, or of another choice."""
    variant = step.variant if choice is None else step.choice(choice)
    return keys.direction_key(variant.idempotency_key, direction, variant.index)


def tell_revised(unit: Unit, step: StepRow, rule: str, **more: Any) -> None:
    """Write what the step runs from now on, in the words that people are asked with."""
    variant = step.variant
    facts = {"revision": step.revision} | runs(step, Direction.FORWARD)
    facts |= {"verdict": variant.verdict, "rule": rule}
    if variant.index:
        facts["alternative"] = variant.index
    unit.move(step, StepState.AWAITING_APPROVAL, "step.revised", **facts, **more)
