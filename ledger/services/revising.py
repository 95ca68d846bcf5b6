"""The agent's next version of a step that a person asked to change."""

from __future__ import annotations

from typing import Any

from ledger import errors, storage
from ledger.rows import SagaRow
from ledger.services import revising_sql as sql
from ledger.services.asking import ask, denial, judge, tell_revised
from ledger.services.forward import resume
from ledger.services.holding import refuse
from ledger.services.preparing import Prepared
from ledger.services.proposals import Answer
from ledger.services.unit import Superseded, Unit
from ledger.states import Direction


def revise(unit: Unit, saga: SagaRow, prior: Any, prepared: Prepared) -> Answer:
    """Replace what the step will do under a new digest, and put it to the gate again.

    The effect and the tool stay what they were: another effect is another step.
    Raises StepMismatch.
    """
    if prior.tool != prepared.tool.key:
        raise errors.StepMismatch(
            f"A new version of step {prior.step_id!r} must use the same tool, {prior.tool!r}."
        )
    if prior.effect_key != prepared.claim:
        raise errors.StepMismatch(
            f"A new version of step {prior.step_id!r} must keep its effect, {prior.effect_key!r}; "
            f"this one is {prepared.claim!r}. For another effect use a new step_id.",
        )
    columns = prepared.columns() | {"id": prior.id}
    if storage.execute(sql.REVISE_STEP, columns) != 1:
        raise Superseded
    unit.lock_with_steps([prior.id])
    step = unit.steps[prior.id]
    why = "A person asked for this change."
    verdict = judge(saga, step, Direction.FORWARD, must_ask=why)
    tell_revised(unit, step, verdict.rule)
    resume(unit, saga)
    if verdict.kind == "deny":
        refuse(unit, saga, step, "denied", denial(verdict))
        return Answer("accepted", step.id)
    ask(unit, saga, step, Direction.FORWARD, verdict, why=why)
    return Answer("accepted", step.id)
