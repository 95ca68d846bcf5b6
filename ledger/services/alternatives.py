"""A step's other choices: judged with the step, and whether the next may still be tried."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from ledger import storage
from ledger.rows import SagaRow, StepRow, Variant
from ledger.services.asking import judge, judge_variant
from ledger.services.effects import take_effect
from ledger.services.proposing_sql import REJECTED, TWIN
from ledger.states import Direction


def judged(
    saga: SagaRow, step: Mapping[str, Any], others: Iterable[Variant], must_ask: str
) -> list[Variant]:
    """Each with the gate's verdict, taken when it is sent; `step` as `StepRow.view` has it."""
    found = []
    for other in others:
        why = must_ask or _twin_of(saga, step["step_id"], other)
        verdict = judge_variant(saga, step, other, Direction.FORWARD, must_ask=why)
        found.append(replace(other, verdict=verdict.kind))
    return found


def _twin_of(saga: SagaRow, step_id: str, other: Variant) -> str:
    """Why people are asked about an alternative that another step of its saga has done, or ''."""
    if other.effect_key:
        return ""
    named = {"saga": saga.id, "step_id": step_id}
    told = {"tool": other.tool, "fingerprint": other.fingerprint}
    twin = storage.row(TWIN, named | told)
    return f"It looks like a duplicate of step {twin.step_id!r} ({twin.state})." if twin else ""


def alternative_denied(saga: SagaRow, step: StepRow) -> str:
    """Why the alternative must not be tried, or ''. Its effect is claimed on the way."""
    variant = step.variant
    judged = judge(saga, step, Direction.FORWARD).kind if variant.verdict == "ask" else ""
    if "deny" in {variant.verdict, judged}:
        return f"the policy denies the alternative {variant.tool}"
    told = {"tool": variant.tool, "fingerprint": variant.fingerprint}
    if rejected := storage.row(REJECTED, told | {"saga": step.saga_id}):
        return f"a person rejected exactly that as step {rejected.step_id!r}"
    if not variant.effect_key:
        named = {"saga": step.saga_id, "step_id": step.step_id}
        twin = storage.row(TWIN, named | told)
        asked = variant.verdict == "ask"  # then people are told of the twin, and decide
        return "" if twin is None or asked else f"step {twin.step_id!r} has done just that"
    holder = take_effect(step)
    if holder is None:
        return ""
    return (
        f"the effect of the alternative {variant.tool} is already claimed by step "
        f"{holder.step_id!r} of saga {holder.saga_id}"
    )
