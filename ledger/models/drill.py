from __future__ import annotations

from django.db import models
from django.db.models import Q

from ledger.legs import Leg
from ledger.models.attempt import DIRECTIONS
from ledger.models.fields import ClockTimestamp, uuid7


class Drill(models.Model):
    """A wish to execute and undo a tool in its sandbox. Never changes: what came is in its legs.

    It has nothing to do with any saga: no step, no effect key, no limit, no resource.
    """

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    tool = models.CharField(max_length=200)
    version = models.CharField(max_length=100)
    digest = models.CharField(max_length=64)
    undo = models.CharField(max_length=10, choices=DIRECTIONS)
    args_text = models.TextField()
    sandbox = models.TextField()
    reason = models.TextField()
    asked_by = models.CharField(max_length=200)
    asked_at = models.DateTimeField(db_default=ClockTimestamp())

    class Meta:
        constraints = [
            models.CheckConstraint(
                condition=Q(undo__in=["compensate", "correct"]), name="ledger_drill_undoes"
            ),
            models.CheckConstraint(condition=~Q(reason=""), name="ledger_drill_reason"),
        ]
        indexes = [
            models.Index(fields=["tool", "-id"], name="ledger_drill_of_tool"),
            models.Index(fields=["asked_at"], name="ledger_drill_asked"),
        ]

    def __str__(self) -> str:
        return f"drill of {self.tool}"


class DrillLeg(models.Model):
    """One fact about a drill: a worker took it, what a leg came to, how it ended.

    The database numbers, times and judges them (ledger/drill_walls.py): nothing before the
    start, nothing after the end, nothing twice.
    """

    id = models.BigAutoField(primary_key=True)
    drill = models.ForeignKey(Drill, on_delete=models.PROTECT, related_name="legs", db_index=False)
    leg = models.CharField(max_length=10, choices=[(leg.value, leg.value) for leg in Leg])
    ok = models.BooleanField()
    outcome = models.CharField(max_length=20)
    said = models.TextField(default="", blank=True)
    took_ms = models.PositiveIntegerField(default=0)
    shift_id = models.UUIDField()
    at = models.DateTimeField(db_default=ClockTimestamp())

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["drill", "leg"], name="ledger_drillleg_once"),
            models.CheckConstraint(
                condition=Q(leg__in=[leg.value for leg in Leg]), name="ledger_drillleg_known"
            ),
        ]

    def __str__(self) -> str:
        return f"{self.leg} of {self.drill_id}: {self.outcome}"
