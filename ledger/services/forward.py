"""Going forward: what a recorded effect starts, and when a saga is complete."""

from __future__ import annotations

from ledger.rows import SagaRow, StepRow
from ledger.services.unit import Unit
from ledger.states import SAGA_OPEN, STEP_FINISHED, Direction, SagaState, StepState


def start_next(unit: Unit, saga: SagaRow, done: StepRow) -> None:
    """Queue the step after `done` if it was waiting for it, or complete the saga."""
    following = unit.read_after(done)
    if following is None:
        complete_when_done(unit, saga)
    elif following.state == StepState.WAITING and saga.state in SAGA_OPEN:
        queue(unit, following, "step.queued")
    elif following.state in STEP_FINISHED:
        start_next(unit, saga, following)


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


def _needs_person(step: StepRow) -> bool:
    return step.state in {StepState.UNKNOWN, StepState.COMPENSATING} and bool(step.held_why)
