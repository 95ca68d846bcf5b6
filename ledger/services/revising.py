"""The agent's next version of a step that a person asked to change."""

from __future__ import annotations

import json
from uuid import UUID

from ledger import errors, storage
from ledger.doubt import has_open_doubt
from ledger.gate import Verdict
from ledger.rows import SagaRow, StepRow, Variant
from ledger.services import revising_sql as sql
from ledger.services.alternatives import alternative_denied, judged
from ledger.services.asking import ask, denial, judge, tell_revised
from ledger.services.forward import resume
from ledger.services.holding import refuse
from ledger.services.preparing import Prepared
from ledger.services.proposals import Answer
from ledger.services.unit import Superseded, Unit
from ledger.states import Direction

WHY = "A person asked for this change."


def revise(unit: Unit, saga: SagaRow, step_id: UUID, prepared: Prepared) -> Answer | None:
    """Replace what the step will do under a new digest, and put it to the gate again.

    It goes on with the first choice that differs from those that the step has tried: what was
    tried and failed, and is sent as it was, is not run again. None when nothing differs, or what
    it was before may have happened. The
    effect and the tool stay what they were: another effect is another step. Raises StepMismatch.
    """
    unit.lock_with_steps([step_id])
    step = unit.steps[step_id]
    if has_open_doubt(step):
        return None
    tried = [step.choice(index) for index in range(step.alternative + 1)]
    runs = _first_new(tried, prepared)
    if runs is None:
        return None
    _refuse_another_step(step, prepared)
    step = _rewrite(unit, saga, step, tried, prepared, runs)
    verdict = judge(saga, step, Direction.FORWARD, must_ask=WHY)
    _refuse_taken(saga, step, verdict)
    tell_revised(unit, step, verdict.rule)
    resume(unit, saga)
    if verdict.kind == "deny":
        refuse(unit, saga, step, "denied", denial(verdict))
        return Answer("accepted", step.id)
    ask(unit, saga, step, Direction.FORWARD, verdict, why=WHY)
    return Answer("accepted", step.id)


def _first_new(tried: list[Variant], prepared: Prepared) -> int | None:
    """The place of the first choice that was sent otherwise than it was tried."""
    sent = (prepared.variant, *prepared.alternatives)
    for old, new in zip(tried, sent, strict=False):
        if (old.tool, old.fingerprint) != (new.tool, new.fingerprint):
            return old.index
    return None


def _refuse_another_step(step: StepRow, prepared: Prepared) -> None:
    if step.tool != prepared.tool.key:
        also = (
            " To change the alternative that it runs now, send the first choice as it was."
            if step.alternative
            else ""
        )
        raise errors.StepMismatch(
            f"A new version of step {step.step_id!r} must use the same tool, {step.tool!r}.{also}"
        )
    if step.effect_key != prepared.claim:
        raise errors.StepMismatch(
            f"A new version of step {step.step_id!r} must keep its effect, {step.effect_key!r}; "
            f"this one is {prepared.claim!r}. For another effect use a new step_id.",
        )


def _rewrite(
    unit: Unit,
    saga: SagaRow,
    step: StepRow,
    tried: list[Variant],
    prepared: Prepared,
    runs: int,
) -> StepRow:
    """The step as it is then. Alternatives that were tried and are sent again stay as they ran."""
    kept = max(runs - 1, 0)
    others = judged(saga, step.view(), prepared.alternatives[kept:], WHY)
    columns = prepared.columns() | {
        "id": step.id,
        "alternative": runs,
        "alternatives": json.dumps(step.alternatives[:kept] + [other.stored() for other in others]),
        "former": json.dumps([step.former(old) for old in tried[runs:]]),
    }
    if storage.execute(sql.REVISE_STEP, columns) != 1:
        raise Superseded
    del unit.steps[step.id]
    unit.lock_with_steps([step.id])
    return unit.steps[step.id]


def _refuse_taken(saga: SagaRow, step: StepRow, verdict: Verdict) -> None:
    """An alternative's effect is claimed when its turn comes, and its turn is now."""
    if step.alternative and verdict.kind != "deny" and (why := alternative_denied(saga, step)):
        raise errors.StepMismatch(
            f"This version of step {step.step_id!r} cannot run: {why}. Send another."
        )
