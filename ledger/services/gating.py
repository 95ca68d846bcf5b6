"""What a decision of people does to a step. Each call joins the gate's own transaction."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from ledger import storage
from ledger.doubt import has_open_doubt
from ledger.gate import Verdict
from ledger.rows import SagaRow, StepRow
from ledger.services import forward
from ledger.services.asking import ask
from ledger.services.reconciling import hold_doubt
from ledger.services.settling import go_on, turn_back
from ledger.services.unit import Superseded, Unit
from ledger.states import STEP_NOT_STARTED, Direction, SagaState, StepState


def release(
    step_id: UUID, direction: str, *, actor: str, payload: dict[str, Any], delay_s: float = 0.0
) -> None:
    """A yes: the step may run when its turn comes, and gets its outbox message now.

    Not before `delay_s` seconds have passed, in which the yes can be taken back. Raises
    Superseded when the step no longer waits for this answer.
    """
    unit, saga, step = _locked(step_id, actor)
    unit.entry(saga, "approval.approved", step, direction=direction, **payload)
    if direction != Direction.FORWARD:
        _expect(step, StepState.COMPENSATING)
        unit.send(step, "run", direction, delay_s=delay_s)
    else:
        _expect(step, StepState.AWAITING_APPROVAL)
        if forward.must_wait(step):
            unit.move(step, StepState.WAITING, "step.waiting")
        else:
            forward.queue(unit, step, "step.queued", delay_s=delay_s)
    unit.flush()


def refuse(step_id: UUID, direction: str, *, why: str, actor: str, payload: dict[str, Any]) -> None:
    """A no, or silence until the end: it does not run. `why` is `rejected` or `expired`.

    A refused undo leaves the effect as residue. Raises Superseded when the step no longer
    waits for this answer.
    """
    unit, saga, step = _locked(step_id, actor)
    unit.entry(saga, f"approval.{why}", step, direction=direction, **payload)
    if direction != Direction.FORWARD:
        _expect(step, StepState.COMPENSATING)
    else:
        _expect(step, *STEP_NOT_STARTED)
    if has_open_doubt(step):
        hold_doubt(unit, saga, step, Direction(direction), f"that was {why}.")
    elif direction != Direction.FORWARD:
        step.residue = True
        unit.move(step, StepState.COMMITTED, "step.residue", why=f"the {direction} was {why}")
        go_on(unit, saga, step)
    else:
        if step.state == StepState.WAITING:
            unit.move(step, StepState.AWAITING_APPROVAL, "step.held_again", why="a later no")
            unit.flush()
        step.held_why = ""
        step.error = {"code": why, "detail": payload.get("reason") or f"the request {why}"}
        unit.move(step, StepState.REJECTED, "step.rejected", why=why, by=actor)
        unit.free(step)
        turn_back(unit, saga, step, f"step {step.step_id} was {why}")
    unit.flush()


def ask_for_change(step_id: UUID, *, text: str, actor: str, payload: dict[str, Any]) -> None:
    """The agent gets the text and the saga waits for its next version of the step."""
    unit, saga, step = _locked(step_id, actor)
    _expect(step, StepState.AWAITING_APPROVAL)
    unit.entry(saga, "approval.change_requested", step, **payload)
    if has_open_doubt(step):
        hold_doubt(unit, saga, step, Direction.FORWARD, f"a person asked for a change. {text}")
        unit.flush()
        return
    step.error = {"code": "change_requested", "detail": text}
    unit.move(step, StepState.CHANGE_REQUESTED, "step.change_requested", text=text)
    if saga.state == SagaState.RUNNING:
        unit.move_saga(saga, SagaState.PAUSED, "saga.paused", why="a change was asked for")
    unit.flush()


def ask_others(step_id: UUID, direction: str, verdict: Verdict, *, why: str, actor: str) -> None:
    """Put the same question to others: what would run, and the step, stay as they are.

    Raises Superseded when the step no longer waits for this answer.
    """
    unit, saga, step = _locked(step_id, actor)
    forward_ = direction == Direction.FORWARD
    _expect(step, StepState.AWAITING_APPROVAL if forward_ else StepState.COMPENSATING)
    ask(unit, saga, step, Direction(direction), verdict, why=why)
    unit.flush()


@storage.transition
def journal(
    saga_id: UUID, kind: str, *, step_id: str = "", actor: str, payload: dict[str, Any]
) -> None:
    """One fact that changes no state, such as a click that came too late."""
    unit = Unit(actor)
    unit.lock([saga_id])
    unit.entry(unit.sagas[saga_id], kind, step_id, **payload)
    unit.flush()


def _locked(step_id: UUID, actor: str) -> tuple[Unit, SagaRow, StepRow]:
    unit = Unit(actor)
    unit.lock_with_steps([step_id])
    step = unit.steps[step_id]
    return unit, unit.sagas[step.saga_id], step


def _expect(step: StepRow, *states: StepState) -> None:
    if step.state not in states:
        raise Superseded
