from __future__ import annotations

from django.db import models
from django.db.models import Q

from ledger.models.attempt import DIRECTIONS
from ledger.models.fields import ClockTimestamp, uuid7
from ledger.models.step import Step


class OutboxMessage(models.Model):
    """The intention to run or to look, committed together with the state that wants it.

    `saga_fence` is the fence it was written under: once the saga's own has risen the
    message is void, and is dropped by whoever takes it.
    """

    RUN, PROBE = "run", "probe"

    id = models.BigAutoField(primary_key=True)
    step = models.ForeignKey(Step, on_delete=models.PROTECT)
    kind = models.CharField(max_length=5, choices=[(RUN, RUN), (PROBE, PROBE)])
    direction = models.CharField(max_length=10, choices=DIRECTIONS)
    saga_fence = models.IntegerField()
    tool = models.CharField(max_length=200)
    agent = models.CharField(max_length=100)
    saga_id = models.UUIDField()
    resource = models.TextField(default="", blank=True)
    round = models.IntegerField(default=0)
    negatives = models.IntegerField(default=0)
    due_at = models.DateTimeField(db_default=ClockTimestamp())
    created_at = models.DateTimeField(db_default=ClockTimestamp())
    taken_at = models.DateTimeField(null=True, blank=True)
    lease_until = models.DateTimeField(null=True, blank=True)
    parked_why = models.TextField(default="", blank=True)

    class Meta:
        # Kinds and counters: a trigger's (ledger/walls.py), as a step's are.
        indexes = [
            models.Index(
                fields=["due_at", "id"],
                condition=Q(taken_at__isnull=True),
                name="ledger_outbox_due",
            ),
            models.Index(
                fields=["lease_until"],
                condition=Q(kind="probe", lease_until__isnull=False),
                name="ledger_outbox_probe_lease",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.kind} {self.direction} of {self.step_id}"


class Shift(models.Model):
    """One RQ job's stay: rung for by the relay, lived by a worker, leased in Postgres."""

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    rung_at = models.DateTimeField(db_default=ClockTimestamp())
    started_at = models.DateTimeField(null=True, blank=True)
    lease_until = models.DateTimeField()
    ended_at = models.DateTimeField(null=True, blank=True)
    worker = models.CharField(max_length=200, default="", blank=True)
    free = models.PositiveIntegerField(default=0)
    ran = models.PositiveBigIntegerField(default=0)
    # How often RQ delivered its job again, or called it failed: heard, counted, heeded by nobody.
    ignored = models.PositiveIntegerField(default=0, db_default=0)

    class Meta:
        indexes = [
            models.Index(
                fields=["lease_until"], condition=Q(ended_at__isnull=True), name="ledger_shift_live"
            ),
            models.Index(fields=["id"], condition=Q(ignored__gt=0), name="ledger_shift_ignored"),
        ]

    def __str__(self) -> str:
        return str(self.pk)
