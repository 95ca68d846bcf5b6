from __future__ import annotations

from django.db import models
from django.db.models import Q

from ledger.models.fields import ClockTimestamp, state_field, uuid7
from ledger.models.identity import Agent
from ledger.states import SagaState, why_no_more_steps


class Saga(models.Model):
    """One task of one agent. Its row is the lock under which everything in it changes.

    `fence` rises whenever work already promised must no longer start (turning back, a
    freeze of this saga); an outbox message remembers the fence it was written under.
    `head_seq` and `head_hash` are the end of the saga's chain and are moved by the
    database's own trigger on entries, never by code.
    """

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    # Two indexes below begin with the agent.
    agent = models.ForeignKey(Agent, on_delete=models.PROTECT, db_index=False)
    task_id = models.CharField(max_length=200)
    name = models.CharField(max_length=200)
    opened_digest = models.CharField(max_length=64)
    metadata = models.JSONField(default=dict)
    webhook = models.CharField(max_length=2000, default="", blank=True)
    state = state_field(SagaState, default=SagaState.RUNNING)
    fence = models.IntegerField(default=0)
    step_count = models.IntegerField(default=0)
    retry_budget = models.IntegerField()
    retries_used = models.IntegerField(default=0)
    pivot_position = models.IntegerField(null=True, blank=True)
    started_by = models.CharField(max_length=200)
    closed_at = models.DateTimeField(null=True, blank=True)
    ended_backward_why = models.TextField(default="", blank=True)
    head_seq = models.BigIntegerField(default=0)
    head_hash = models.CharField(max_length=64, default="0" * 64)
    created_at = models.DateTimeField(db_default=ClockTimestamp())
    updated_at = models.DateTimeField(db_default=ClockTimestamp())
    ended_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        # Its states and counters: a trigger's (ledger/walls.py), as a step's are.
        constraints = [
            models.UniqueConstraint(fields=["agent", "task_id"], name="ledger_saga_task"),
        ]
        indexes = [
            models.Index(fields=["state", "id"], name="ledger_saga_state"),
            models.Index(fields=["agent", "id"], name="ledger_saga_agent"),
            # Found by the orchestrator's own name, and by its beginning, whatever the collation.
            models.Index(fields=["task_id", "id"], name="ledger_saga_task_id"),
            models.Index(
                fields=["task_id"], opclasses=["varchar_pattern_ops"], name="ledger_saga_task_like"
            ),
            models.Index(
                fields=["name"], opclasses=["varchar_pattern_ops"], name="ledger_saga_name_like"
            ),
        ]

    def __str__(self) -> str:
        return f"{self.name} ({self.task_id})"

    @property
    def why_no_more_steps(self) -> str:
        return why_no_more_steps(
            self.state,
            closed=self.closed_at is not None,
            turned_back=bool(self.ended_backward_why),
        )


UUID_TEXT = r"^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$"


class Freeze(models.Model):
    """An operator's stop: nothing new leaves while it is active."""

    SCOPES = ("all", "tool", "agent", "saga")

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    scope = models.CharField(max_length=10, choices=[(scope, scope) for scope in SCOPES])
    value = models.CharField(max_length=200, default="", blank=True)
    reason = models.TextField()
    created_by = models.CharField(max_length=200)
    created_at = models.DateTimeField(db_default=ClockTimestamp())
    expires_at = models.DateTimeField(null=True, blank=True)
    lifted_at = models.DateTimeField(null=True, blank=True)
    lifted_by = models.CharField(max_length=200, default="", blank=True)

    class Meta:
        constraints = [
            models.CheckConstraint(
                condition=Q(scope="all", value="") | (~Q(scope="all") & ~Q(value="")),
                name="ledger_freeze_value",
            ),
            models.CheckConstraint(
                condition=Q(scope__in=["all", "tool", "agent", "saga"]), name="ledger_freeze_scope"
            ),
            # Claims compare it as text, so it is written in the one way in which they write it.
            models.CheckConstraint(
                condition=~Q(scope="saga") | Q(value__regex=UUID_TEXT), name="ledger_freeze_of_saga"
            ),
        ]
        indexes = [
            models.Index(
                fields=["scope", "value"],
                condition=Q(lifted_at__isnull=True),
                name="ledger_freeze_active",
            )
        ]

    def __str__(self) -> str:
        return f"freeze of {self.scope} {self.value}".strip()
