"""An operator's answers where the console cannot know, each told with person and reason."""

from __future__ import annotations

from typing import Any, Literal
from uuid import UUID

from ledger import errors, storage
from ledger.outcomes import Applied, NotApplied
from ledger.rows import SagaRow, StepRow
from ledger.services import forward
from ledger.services.backward import advance, ask_or_send, begin, undo_direction
from ledger.services.looking import conclude
from ledger.services.reconciling import is_in_doubt
from ledger.services.settling import ask_again, commit, fail, undone
from ledger.services.tooling import Parked, tool_to_run
from ledger.services.unit import Unit
from ledger.states import Direction, StepState
from ledger.tools.installed import registry

Resolution = Literal["happened", "did_not_happen", "end_saga"]


@storage.transition
def resolve(
    step_id: UUID, answer: Resolution, *, result: Any = None, reason: str, actor: str
) -> None:
    """Answer for a step in doubt or stuck.

    Raises NotFound, InvalidArgs (no reason), AlreadyDecided (nothing is waiting for an answer;
    also for a second click).
    """
    unit, saga, step = _locked(step_id, reason, actor)
    if not is_in_doubt(step):
        raise errors.AlreadyDecided(
            f"Step {step.step_id!r} is {step.state} and waits for no answer.", state=step.state
        )
    unit.entry(saga, "operator.resolved", step, answer=answer, reason=reason, result=result)
    step.held_why = ""
    step.dirty = True
    if answer == "happened":
        _happened(unit, saga, step, result)
    elif answer == "did_not_happen":
        _did_not_happen(unit, saga, step)
    else:
        _end_saga(unit, saga, step, reason)
    unit.flush()


def _happened(unit: Unit, saga: SagaRow, step: StepRow, result: Any) -> None:
    if step.executed_seq is None:
        if step.state == StepState.UNKNOWN:
            found = Applied(result)
            conclude(unit, saga, step, Direction.FORWARD, found, tool=None, how="operator")
        else:
            commit(unit, saga, step, result, how="operator")
        return
    direction = undo_direction(step) or Direction.COMPENSATE
    undone(unit, saga, step, direction, result, how="operator")


def _did_not_happen(unit: Unit, saga: SagaRow, step: StepRow) -> None:
    if step.executed_seq is not None:
        _undo_again(unit, saga, step)
        return
    if step.state == StepState.UNKNOWN:
        tool = tool_to_run(step)
        known = None if isinstance(tool, Parked) else tool
        forward_ = Direction.FORWARD
        conclude(unit, saga, step, forward_, NotApplied(), tool=known, how="operator")
    else:
        fail(unit, saga, step, "an operator says that it did not happen")
    forward.unstick(unit, saga, "an operator answered")


def _end_saga(unit: Unit, saga: SagaRow, step: StepRow, reason: str) -> None:
    """Leave what cannot be known or undone as residue, and take the saga back from here."""
    why = f"an operator ended the saga: {reason}"
    if step.executed_seq is not None:
        step.residue = True
        unit.move(step, StepState.COMMITTED, "step.residue", why=why)
        unit.free(step)
    elif step.state == StepState.STUCK:
        step.error = {"code": "failed", "detail": why}
        unit.move(step, StepState.FAILED, "step.failed", error=why)
    else:
        # Nobody knows, and nobody will: it stays unknown, keeps its effect key, and is listed.
        step.residue = True
        unit.entry(saga, "step.residue", step, why=why)
        unit.free(step)
    if saga.ended_backward_why:
        forward.unstick(unit, saga, why)
        advance(unit, saga)
    else:
        begin(unit, saga, why, cause=step.step_id)


@storage.transition
def retry(step_id: UUID, *, reason: str, actor: str) -> None:
    """Try a stuck step again, look again, or let a parked one run under today's code.

    Raises NotFound, InvalidArgs (no reason), AlreadyDecided (nothing to try again).
    """
    unit, saga, step = _locked(step_id, reason, actor)
    parked = bool(step.held_why) and isinstance(tool_to_run(step), Parked)
    if not (parked or is_in_doubt(step)):
        raise errors.AlreadyDecided(
            f"Step {step.step_id!r} is {step.state}; there is nothing to try again.",
            state=step.state,
        )
    unit.entry(saga, "operator.retried", step, reason=reason)
    if parked:
        _confirm_tool(step)
    step.held_why = ""
    step.dirty = True
    if step.state == StepState.UNKNOWN:
        unit.send(step, "probe", Direction.FORWARD)
    elif step.executed_seq is not None and not parked:
        _undo_again(unit, saga, step)
    elif step.state == StepState.STUCK:
        _run_again(unit, saga, step)
    forward.unstick(unit, saga, "an operator tried again")
    unit.flush()


def _confirm_tool(step: StepRow) -> None:
    """The person's yes to today's code, and to no other: it is kept as that code's digest."""
    step.confirmed_tool = registry().get(step.variant.tool).digest
    storage.execute(
        "UPDATE ledger_outboxmessage SET due_at = clock_timestamp() "
        "WHERE step_id = %s AND taken_at IS NULL",
        [step.id],
    )


def _run_again(unit: Unit, saga: SagaRow, step: StepRow) -> None:
    if step.variant.verdict == "ask":
        ask_again(unit, saga, step, "An operator tries it again; a yes counts for one run.")
    else:
        forward.queue(unit, step, "step.queued", why="an operator tries it again")


def _undo_again(unit: Unit, saga: SagaRow, step: StepRow) -> None:
    step.error = None  # the person has answered for the doubt
    if step.state == StepState.STUCK:
        unit.move(step, StepState.COMPENSATING, "step.compensating", why="an operator tries again")
    forward.unstick(unit, saga, "an operator tried again")
    direction = undo_direction(step)
    if direction is not None:
        ask_or_send(unit, saga, step, direction)


def _locked(step_id: UUID, reason: str, actor: str) -> tuple[Unit, SagaRow, StepRow]:
    if not reason.strip():
        raise errors.InvalidArgs(
            "A reason is needed: say in `reason` how you know.",
            errors=[{"pointer": "/reason", "detail": "must not be empty"}],
        )
    unit = Unit(actor)
    unit.lock_with_steps([step_id])
    step = unit.steps.get(step_id)
    if step is None:
        raise errors.NotFound(f"There is no step {step_id}.")
    return unit, unit.sagas[step.saga_id], step
