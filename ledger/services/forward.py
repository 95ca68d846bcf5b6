"""Going forward: what a recorded effect starts, and when a saga is complete."""

from __future__ import annotations

from ledger import storage
from ledger.rows import SagaRow, StepRow
from ledger.services.unit import Unit
from ledger.states import SAGA_OPEN, STEP_FINISHED, Direction, SagaState, StepState

# Only a no can end a step before its turn, and a turn comes when every step before has ended: so
# the last one that nobody rejected tells of all.
_LAST_BEFORE = """
SELECT state FROM ledger_step WHERE saga_id = %s AND position < %s AND state <> 'rejected'
ORDER BY position DESC LIMIT 1
"""


def must_wait(step: StepRow) -> bool:
    """Whether a step that comes before it in its saga has not ended."""
    before = storage.row(_LAST_BEFORE, [step.saga_id, step.position])
    return before is not None and before.state not in STEP_FINISHED


def start_next(unit: Unit, saga: SagaRow, done: StepRow) -> None:
    """Queue the first step after `done` that has not ended, or complete the saga.

    After a no that came before the turn of `done`, what follows waits for what `done` waited for.
    """
    if done.state == StepState.REJECTED and must_wait(done):
        return
    following = unit.read_unfinished_after(done)
    if following is None:
        complete_when_done(unit, saga)
    elif following.state == StepState.WAITING and saga.state in SAGA_OPEN:
        queue(unit, following, "step.queued")


def queue(unit: Unit, step: StepRow, kind: str, *, delay_s: float = 0.0, **payload: object) -> None:
    """Make a step ready to run: its state and the message that wants it, together."""
    unit.move(step, StepState.QUEUED, kind, **payload)
    unit.send(step, "run", Direction.FORWARD, delay_s=delay_s)


def complete_when_done(unit: Unit, saga: SagaRow) -> None:
    """End a saga forward once its agent has said that no more steps come and all are finished."""
    if not saga.closed or saga.state not in SAGA_OPEN:
        return
    steps = unit.read_saga_steps(saga)
    if all(step.state in STEP_FINISHED for step in steps):
        if saga.state == SagaState.PAUSED:
            unit.move_saga(saga, SagaState.RUNNING, "saga.resumed")
        unit.move_saga(saga, SagaState.COMPLETED, "saga.completed")


# A saga is frozen by name; a freeze of its tool or its agent holds messages and not the saga.
_IS_FROZEN = """
SELECT 1 FROM ledger_freeze WHERE scope = 'saga' AND value = %s AND lifted_at IS NULL
    AND (expires_at IS NULL OR expires_at > clock_timestamp()) LIMIT 1
"""


def resume(unit: Unit, saga: SagaRow) -> None:
    """Let a paused saga go on, unless something else still holds it."""
    if saga.state == SagaState.PAUSED and not _held_by(unit, saga):
        unit.move_saga(saga, SagaState.RUNNING, "saga.resumed")


def _held_by(unit: Unit, saga: SagaRow) -> str:
    """Why a saga that could go forward stays paused, or ''."""
    if storage.row(_IS_FROZEN, [str(saga.id)]):
        return "it is frozen"
    steps = unit.read_saga_steps(saga)
    asked = [step.step_id for step in steps if step.state == StepState.CHANGE_REQUESTED]
    return f"a change of step {asked[0]} was asked for" if asked else ""


def unstick(unit: Unit, saga: SagaRow, why: str) -> None:
    """Let a stuck saga go on in the direction in which it stuck."""
    if saga.state != SagaState.STUCK:
        return
    steps = unit.read_saga_steps(saga)
    if any(step.state == StepState.STUCK or _needs_person(step) for step in steps):
        return
    backward = bool(saga.ended_backward_why)
    state = SagaState.COMPENSATING if backward else SagaState.RUNNING
    unit.move_saga(saga, state, "saga.unstuck", why=why)
    if not backward and (held := _held_by(unit, saga)):
        unit.move_saga(saga, SagaState.PAUSED, "saga.paused", why=held)


def _needs_person(step: StepRow) -> bool:
    """Whether somebody must answer for it; of residue nobody is asked any more."""
    is_held = step.state in {StepState.UNKNOWN, StepState.COMPENSATING} and bool(step.held_why)
    return is_held and not step.residue
