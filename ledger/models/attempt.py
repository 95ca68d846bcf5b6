from __future__ import annotations

from django.db import models
from django.db.models import Q

from ledger.models.fields import ClockTimestamp, state_field, uuid7
from ledger.models.step import Step
from ledger.states import AttemptState, Direction, RecordState

DIRECTIONS = [(direction.value, direction.value) for direction in Direction]


class Attempt(models.Model):
    """One try of one direction of a step. The row itself is the intent to call out.

    `token` and `fence` are what every later write about this attempt must show. A lease
    is judged by the database's clock alone. `late` keeps what an attempt said after the
    console had stopped waiting for it: it changes no state, but it is evidence.
    """

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    # The unique fence begins with the step: an index of its own would only cost.
    step = models.ForeignKey(Step, on_delete=models.PROTECT, related_name="tries", db_index=False)
    direction = models.CharField(max_length=10, choices=DIRECTIONS)
    alternative = models.IntegerField(default=0)
    fence = models.IntegerField()
    token = models.UUIDField()
    idempotency_key = models.CharField(max_length=90)
    shift_id = models.UUIDField()
    round = models.IntegerField(default=0)
    state = models.CharField(
        max_length=10,
        choices=[(state.value, state.value) for state in AttemptState],
        default=AttemptState.STARTED.value,
    )
    started_at = models.DateTimeField(db_default=ClockTimestamp())
    lease_until = models.DateTimeField()
    ended_at = models.DateTimeField(null=True, blank=True)
    outcome = models.JSONField(null=True, blank=True)
    late = models.JSONField(null=True, blank=True)

    class Meta:
        # States and counters: a trigger's (ledger/walls_attempts.py), as a step's are.
        constraints = [
            models.UniqueConstraint(fields=["step", "fence"], name="ledger_attempt_fence"),
            models.UniqueConstraint(
                fields=["step"], condition=Q(state="started"), name="ledger_attempt_one_at_a_time"
            ),
        ]
        indexes = [
            models.Index(
                fields=["lease_until"], condition=Q(state="started"), name="ledger_attempt_lease"
            )
        ]

    def __str__(self) -> str:
        return f"{self.direction} {self.fence} of {self.step_id}"


class IdempotencyRecord(models.Model):
    """What is known of one downstream key. `executed` is final."""

    key = models.CharField(max_length=90, primary_key=True)
    step = models.ForeignKey(Step, on_delete=models.PROTECT, related_name="records")
    direction = models.CharField(max_length=10, choices=DIRECTIONS)
    fingerprint = models.CharField(max_length=64)
    state = state_field(RecordState, default=RecordState.PENDING)
    lease_until = models.DateTimeField(null=True, blank=True)
    response = models.TextField(null=True, blank=True)  # noqa: DJ001 - null: no response yet
    created_at = models.DateTimeField(db_default=ClockTimestamp())
    updated_at = models.DateTimeField(db_default=ClockTimestamp())

    def __str__(self) -> str:
        return self.key


class EffectClaim(models.Model):
    """The right of one step to an effect, across all sagas and agents.

    At most one claim of a key is unreleased; it is released when its step ended without
    an effect or was undone. `skeleton` finds keys that only look the same (UTS 39).
    """

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    key = models.TextField()
    skeleton = models.TextField()
    step = models.ForeignKey(Step, on_delete=models.PROTECT, related_name="claims")
    claimed_at = models.DateTimeField(db_default=ClockTimestamp())
    released_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["key"], condition=Q(released_at__isnull=True), name="ledger_effect_once"
            )
        ]
        indexes = [
            models.Index(
                fields=["skeleton"],
                condition=Q(released_at__isnull=True),
                name="ledger_effect_skeleton",
            )
        ]

    def __str__(self) -> str:
        return self.key


class ResourceHold(models.Model):
    """Who works on a resource now. Kept through `unknown`: that call may still be running."""

    resource = models.TextField(primary_key=True)
    step = models.ForeignKey(Step, on_delete=models.PROTECT)
    since = models.DateTimeField(db_default=ClockTimestamp())

    def __str__(self) -> str:
        return self.resource
