from __future__ import annotations

from django.db import models
from django.db.models import F, Q

from ledger.models.fields import ClockTimestamp, uuid7


class Reservation(models.Model):
    """What one run takes of one limit, from the claim on.

    `share` is whose part it takes (an agent, a tool, or ''). The database sets `returned_at`
    when the record of the run's key says that it certainly had no effect, and refuses it
    otherwise (approvals/walls.py): what is unknown stays taken.
    """

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    limit_name = models.CharField(max_length=120)
    share = models.CharField(max_length=200, default="", blank=True)
    # No reference: a limit still counts what left with an archived saga.
    step_id = models.UUIDField()
    idempotency_key = models.CharField(max_length=90)
    amount = models.DecimalField(max_digits=30, decimal_places=10)
    reserved_at = models.DateTimeField(db_default=ClockTimestamp())
    returned_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["limit_name", "idempotency_key"],
                condition=Q(returned_at__isnull=True),
                name="approvals_reserved_once",
            ),
            models.CheckConstraint(
                condition=Q(amount__gte=0), name="approvals_reservation_takes_something"
            ),
        ]
        indexes = [
            # What a window holds, read from the index alone.
            models.Index(
                fields=["limit_name", "share", "reserved_at"],
                include=["amount"],
                condition=Q(returned_at__isnull=True),
                name="approvals_window",
            ),
            # Given back by the key of the run.
            models.Index(
                F("idempotency_key"),
                condition=Q(returned_at__isnull=True),
                name="approvals_reserved_by_key",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.amount} of {self.limit_name}"
