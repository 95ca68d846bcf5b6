"""Reads of the operations and ledger pages: shifts, the outbox, freezes, chains, checkpoints."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from django.db.models import Min, Q, QuerySet, Sum
from django.db.models.functions import Now

from ledger.models import Attempt, Checkpoint, Freeze, OutboxMessage, Saga, Shift
from ledger.queries.gauges import ignored_reports

# Counting stops here: more is "1000+", which a person reads in the same way.
COUNT_LIMIT = 1_000
_RECENT = 20


@dataclass(frozen=True, slots=True)
class Operations:
    """What runs, what is owed, and since when the oldest of it is due."""

    shifts: Sequence[Shift]
    free: int
    waiting: int
    waiting_is_more: bool
    oldest_due: datetime | None
    later: int
    in_flight: int
    recent_shifts: Sequence[Shift]
    ignored: int


def _bounded(found: QuerySet[Any]) -> int:
    return found[: COUNT_LIMIT + 1].count()


def operations() -> Operations:
    alive = Shift.objects.filter(ended_at__isnull=True, lease_until__gt=Now())
    owed = OutboxMessage.objects.filter(taken_at__isnull=True)
    due = owed.filter(due_at__lte=Now())
    waiting = _bounded(due)
    return Operations(
        shifts=list(alive.order_by("started_at", "rung_at")[:100]),
        free=alive.aggregate(free=Sum("free"))["free"] or 0,
        waiting=min(waiting, COUNT_LIMIT),
        waiting_is_more=waiting > COUNT_LIMIT,
        oldest_due=due.aggregate(oldest=Min("due_at"))["oldest"],
        later=min(_bounded(owed.filter(due_at__gt=Now())), COUNT_LIMIT),
        in_flight=min(_bounded(Attempt.objects.filter(state="started")), COUNT_LIMIT),
        recent_shifts=list(Shift.objects.filter(ended_at__isnull=False).order_by("-id")[:_RECENT]),
        ignored=ignored_reports(),
    )


def active_freezes() -> list[Freeze]:
    """What is stopped now, newest first."""
    unexpired = Q(expires_at__isnull=True) | Q(expires_at__gt=Now())
    return list(Freeze.objects.filter(unexpired, lifted_at__isnull=True).order_by("-id")[:100])


def past_freezes() -> list[Freeze]:
    over = Q(lifted_at__isnull=False) | Q(expires_at__lte=Now())
    return list(Freeze.objects.filter(over).order_by("-id")[:_RECENT])


def checkpoints() -> list[Checkpoint]:
    return list(Checkpoint.objects.order_by("-id")[:_RECENT])


def chain_heads(before: UUID | None = None) -> list[Saga]:
    """The newest sagas with the ends of their chains."""
    newest = Saga.objects.select_related("agent").order_by("-id")
    if before:
        newest = newest.filter(pk__lt=before)
    return list(newest[:_RECENT])
