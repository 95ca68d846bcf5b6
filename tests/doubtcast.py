"""Steps in doubt, and the late answers of workers that nobody waits for any more."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any
from uuid import UUID

from ledger.models import Attempt, Entry, OutboxMessage, Step
from ledger.models.fields import ClockTimestamp
from ledger.outcomes import Unknown
from ledger.services.claiming import Assignment
from ledger.services.closing import abort
from ledger.services.operating import resolve
from ledger.services.sweeping import expire_attempt
from tests.deploys import Till, booking
from tests.stage import Stage

ONA = "person:ona"
CUT = Unknown("the line went dead")


def due_now() -> None:
    """The time is over for which what waits had to wait."""
    OutboxMessage.objects.filter(taken_at=None).update(due_at=ClockTimestamp())


def ago(step: UUID, seconds: float) -> None:
    """The last intent lies this much further back."""
    last = Attempt.objects.filter(step=step).latest("fence")
    Attempt.objects.filter(pk=last.pk).update(
        started_at=last.started_at - timedelta(seconds=seconds)
    )


def look(stage: Stage | Till, sighting: Any) -> None:
    """The look that waits is made, and sees this."""
    due_now()
    taken = stage.claim()
    assert [one.attempt for one in taken] == [None]
    stage.answer(taken, sighting)


def looks_of(step: UUID) -> list[Any]:
    row = Step.objects.get(pk=step)
    found = Entry.objects.filter(saga_id=row.saga_id, step_id=row.step_id, kind="step.looked")
    return [json.loads(entry.payload)["saw"] for entry in found.order_by("seq")]


def state(step: UUID) -> str:
    return Step.objects.get(pk=step).state


def zombie(till: Till, *, act: bool = True) -> tuple[UUID, list[Assignment], Any]:
    """A worker that is stopped past its lease; what it would say when it wakes."""
    saga = till.open(booking("one"))
    taken = till.claim()
    outcome = taken[0].tool.run(taken[0].call) if act else None
    expire(taken[0])
    return saga, taken, outcome


def stopped_refund(stage: Stage) -> tuple[UUID, UUID, list[Assignment]]:
    """A refund with its yes, whose worker is stopped past its lease: saga, step and that call.

    People have said since that it did not happen, and are asked again.
    """
    saga = stage.saga()
    step = stage.refund(saga)
    stage.decide(step)
    taken = stage.claim()
    expire(taken[0])
    resolve(step, "did_not_happen", reason="saw nothing", actor=ONA)
    return saga, step, taken


def lost_undo(till: Till) -> tuple[UUID, list[Assignment], Any]:
    """An undo whose answer was cut off after it was carried out; what the answer would say."""
    saga = till.open(booking("one"))
    till.work()
    abort(saga, "no", bearer=till.agent)
    taken = till.claim()
    outcome = taken[0].tool.run(taken[0].call)
    till.answer(taken, CUT)
    return saga, taken, outcome


def expire(taken: Assignment) -> None:
    started = Attempt.objects.get(pk=taken.attempt).started_at
    Attempt.objects.filter(pk=taken.attempt).update(lease_until=started)
    assert taken.attempt is not None
    assert expire_attempt(taken.attempt)


def past_the_pivot(till: Till) -> UUID:
    """A saga that goes forward only: what fails in it now waits for a person."""
    till.release(tier="pivot")
    saga = till.open(booking("pivot"))
    till.work()
    till.release()
    return saga
