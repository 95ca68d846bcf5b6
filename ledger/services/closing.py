"""The agent's two last words: no more steps, or undo what was done."""

from __future__ import annotations

from uuid import UUID

from ledger import errors, faultpoints, storage
from ledger.bearer import Bearer
from ledger.rows import SagaRow
from ledger.services import remembering
from ledger.services.backward import begin, pivot_in_doubt
from ledger.services.forward import complete_when_done
from ledger.services.unit import Unit
from ledger.states import SAGA_ENDED, SagaState


@storage.read_back
@storage.transition
def complete(saga_id: UUID, *, bearer: Bearer) -> None:
    """No more steps come; the saga is completed when all are finished. Said twice: once.

    Raises NotFound, Forbidden, SagaEnded (it is going, or went, backwards).
    """
    unit, saga = _locked(saga_id, bearer)
    if saga is None:
        _answer_archived(saga_id, bearer, SagaState.COMPLETED)
        return
    if saga.state == SagaState.COMPLETED:
        return
    if saga.ended_backward_why or saga.state in SAGA_ENDED:
        raise _ended(saga)
    if not saga.closed:
        saga.closed = True
        saga.dirty = True
        unit.entry(saga, "saga.closed")
    complete_when_done(unit, saga)
    unit.flush()


@storage.read_back
@storage.transition
def abort(saga_id: UUID, reason: str, *, bearer: Bearer) -> None:
    """Turn the saga round. Said again while it goes back, it changes nothing.

    Raises NotFound, Forbidden, SagaEnded (completed, or past its pivot: forward only).
    """
    unit, saga = _locked(saga_id, bearer)
    if saga is None:
        _answer_archived(saga_id, bearer, SagaState.COMPENSATED)
        return
    if saga.ended_backward_why:
        return
    if saga.state in SAGA_ENDED:
        raise _ended(saga)
    if saga.is_past_pivot or pivot_in_doubt(unit, saga):
        raise errors.SagaEnded(
            "The saga's pivot has happened, or may have: it can only go forward. An operator can "
            "end it at the step that holds it up.",
            saga=str(saga.id),
            state=saga.state,
        )
    begin(unit, saga, reason or "the agent aborted it")
    faultpoints.reached("P18")
    unit.flush()


def _locked(saga_id: UUID, bearer: Bearer) -> tuple[Unit, SagaRow | None]:
    """The saga under its lock; None when it is archived."""
    if not bearer.is_agent:
        raise errors.Forbidden("Only the saga's own agent can close or abort it.")
    unit = Unit(bearer.actor)
    unit.lock([saga_id])
    saga = unit.sagas.get(saga_id)
    if saga is not None and saga.agent_id != bearer.agent_id:
        raise errors.NotFound(f"You have no saga {saga_id}.")
    return unit, saga


def _answer_archived(saga_id: UUID, bearer: Bearer, wanted: SagaState) -> None:
    """What was said before may be said again; anything else is refused."""
    archived = remembering.saga(saga_id, bearer)
    if archived.state != wanted:
        raise remembering.ended(archived)


def _ended(saga: SagaRow) -> errors.SagaEnded:
    return errors.SagaEnded(
        f"The saga {saga.task_id!r} is already {saga.state}.", saga=str(saga.id), state=saga.state
    )
