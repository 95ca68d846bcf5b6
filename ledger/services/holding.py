"""What may not start after all: it goes back to people, or is denied. Nothing has left yet."""

from __future__ import annotations

from collections.abc import Sequence

from ledger import storage
from ledger.doubt import has_open_doubt
from ledger.gate import Leaving, Overrun, gate
from ledger.rows import SagaRow, StepRow
from ledger.services import claiming_sql as sql
from ledger.services.asking import ask, denial, judge
from ledger.services.assignments import Assignment
from ledger.services.settling import turn_back
from ledger.services.unit import Unit
from ledger.states import Direction, StepState

# From now on people are asked about it, so whatever looks at a held step looks at this one too.
_HOLD = "UPDATE ledger_step SET verdict = 'ask' WHERE id = %s AND verdict = 'allow'"
# An alternative has a verdict of its own, and changes where people may change it.
_HOLD_ALTERNATIVE = """
UPDATE ledger_step SET revision = revision + 1, alternatives = jsonb_set(alternatives,
    ARRAY[(alternative - 1)::text, 'verdict'], '"ask"')
WHERE id = %s AND alternative > 0 AND state = 'awaiting_approval'
"""


def within_limits(unit: Unit, ready: Sequence[Assignment]) -> list[Assignment]:
    """Those that no limit of the gate stops. Undoing is never limited."""
    leaving = [
        Leaving(
            step=found.step,
            tool=found.tool.key,
            agent=unit.sagas[found.saga].agent,
            args=found.call.args,
            idempotency_key=found.call.idempotency_key,
        )
        for found in ready
        if found.attempt
        and found.direction == Direction.FORWARD
        # Sent again to find out: it has taken its part, and nobody may end it as if it had not.
        and not has_open_doubt(unit.steps[found.step])
    ]
    stopped = gate().reserve(leaving)
    if stopped:
        for found in ready:
            if overrun := stopped.get(found.step):
                _stop(unit, found, overrun)
    return [found for found in ready if found.step not in stopped]


def _stop(unit: Unit, found: Assignment, overrun: Overrun) -> None:
    saga, step = unit.sagas[found.saga], unit.steps[found.step]
    storage.execute(sql.VOID, [found.message])
    unit.free(step)
    if overrun.kind == "deny":
        refuse(unit, saga, step, "over_limit", overrun.why)
    else:
        hold_again(unit, saga, step, Direction.FORWARD, overrun.why)


def hold_again(unit: Unit, saga: SagaRow, step: StepRow, direction: Direction, why: str) -> None:
    """Put it to people anew, under the policy of now; a policy that now denies it ends it."""
    verdict = judge(saga, step, direction, must_ask=why)
    if verdict.kind == "deny":
        refuse(unit, saga, step, "denied", f"{why} {denial(verdict)}")
        return
    if direction == Direction.FORWARD:
        unit.move(step, StepState.AWAITING_APPROVAL, "step.held_again", why=why)
        _stay_held(unit, step)
    ask(unit, saga, step, direction, verdict, why=why)


def _stay_held(unit: Unit, step: StepRow) -> None:
    """What was allowed when it was proposed is people's from now on, whatever is tried of it."""
    if step.variant.verdict == "ask":
        return
    if not step.alternative:
        storage.execute(_HOLD, [step.id])
        step.verdict = "ask"
        return
    unit.flush()
    storage.execute(_HOLD_ALTERNATIVE, [step.id])
    step.alternatives[step.alternative - 1]["verdict"] = "ask"
    step.revision += 1


def refuse(unit: Unit, saga: SagaRow, step: StepRow, code: str, why: str) -> None:
    """A step that has not started will not: what is asked about it is withdrawn."""
    step.error = {"code": code, "detail": why}
    step.held_why = ""
    unit.move(step, StepState.REJECTED, "step.rejected", why=why)
    unit.free(step)
    gate().close([step.id], why)
    turn_back(unit, saga, step, f"step {step.step_id} was refused: {why}")
