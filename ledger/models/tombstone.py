"""What stays of a saga that has left for an export. No row here is ever deleted."""

from __future__ import annotations

from django.db import models

from ledger.models.fields import ClockTimestamp, uuid7
from ledger.models.identity import Agent


class Export(models.Model):
    """One file of archived sagas, and where it was put. `finished_at` is the only change."""

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    name = models.CharField(max_length=200, unique=True)
    folder = models.TextField()
    sha256 = models.CharField(max_length=64)
    size = models.BigIntegerField()
    sagas = models.PositiveIntegerField()
    entries = models.PositiveBigIntegerField()
    made_by = models.CharField(max_length=200)
    made_at = models.DateTimeField(db_default=ClockTimestamp())
    finished_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        indexes = [
            models.Index(
                fields=["made_at"],
                condition=models.Q(finished_at__isnull=True),
                name="ledger_export_unfinished",
            )
        ]

    def __str__(self) -> str:
        return self.name


class Tombstone(models.Model):
    """The seal of one archived saga: the last link of its chain, as an entry would be.

    A writer gives `saga_id`, `export`, both digests and `actor`; the database fills in the rest
    from the rows that leave, and refuses whatever does not fit them (ledger/doors). `seq`, `at`,
    `actor`, `payload`, `prev_hash` and `hash` are those of the entry `saga.archived`, which is
    written into the chain if the saga is ever restored. So a saga may have several, one each
    time that it left; the newest one counts.
    """

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    saga_id = models.UUIDField()
    seq = models.BigIntegerField()
    agent = models.ForeignKey(Agent, on_delete=models.PROTECT)
    task_id = models.CharField(max_length=200)
    name = models.CharField(max_length=200)
    opened_digest = models.CharField(max_length=64)
    state = models.CharField(max_length=20)
    steps = models.PositiveIntegerField()
    opened_at = models.DateTimeField()
    ended_at = models.DateTimeField()
    export = models.ForeignKey(Export, on_delete=models.PROTECT)
    sha256 = models.CharField(max_length=64)
    # Of the gate's lines; '' of what left before there was a seal over them.
    gate_sha256 = models.CharField(max_length=64, default="", db_default="", blank=True)
    at = models.DateTimeField()
    actor = models.CharField(max_length=200)
    payload = models.TextField()
    prev_hash = models.CharField(max_length=64)
    hash = models.CharField(max_length=64)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["saga_id", "seq"], name="ledger_tombstone_seal"),
        ]
        indexes = [
            models.Index(fields=["agent", "task_id"], name="ledger_tombstone_task"),
            models.Index(fields=["at"], name="ledger_tombstone_at"),
        ]

    def __str__(self) -> str:
        return f"{self.name} ({self.task_id}), archived"


class StepTombstone(models.Model):
    """What a step that has left is still asked for: its digest, its key, its stored answer.

    Its args are gone; their digest tells whether somebody asks for the same. The one change: a
    step that came back and leaves again is told as it leaves then.
    """

    id = models.UUIDField(primary_key=True, editable=False)
    saga_id = models.UUIDField()
    step_id = models.CharField(max_length=200)
    position = models.PositiveIntegerField()
    tool = models.CharField(max_length=200)
    tool_version = models.CharField(max_length=100)
    tier = models.CharField(max_length=20)
    fingerprint = models.CharField(max_length=64)
    idempotency_key = models.CharField(max_length=64)
    state = models.CharField(max_length=20)
    result_text = models.TextField(null=True, blank=True)  # noqa: DJ001 - null: no result
    error = models.JSONField(null=True, blank=True)
    residue = models.BooleanField()
    attempts = models.PositiveIntegerField()
    created_at = models.DateTimeField()
    executed_at = models.DateTimeField(null=True, blank=True)
    finished_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["saga_id", "step_id"], name="ledger_steptombstone_identity"
            )
        ]

    def __str__(self) -> str:
        return f"{self.step_id} ({self.tool}), archived"


class LateWord(models.Model):
    """What an attempt said when its saga had left already: heard if the saga ever comes back."""

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    saga_id = models.UUIDField()
    step = models.ForeignKey(StepTombstone, on_delete=models.PROTECT, db_index=False)
    attempt_id = models.UUIDField()
    direction = models.CharField(max_length=10)
    evidence = models.JSONField()
    at = models.DateTimeField(db_default=ClockTimestamp())

    class Meta:
        constraints = [models.UniqueConstraint(fields=["attempt_id"], name="ledger_lateword_once")]
        indexes = [models.Index(fields=["saga_id"], name="ledger_lateword_of_saga")]

    def __str__(self) -> str:
        return f"{self.direction} of {self.step_id}, too late"


class ClaimTombstone(models.Model):
    """An effect that a step which has left holds for ever."""

    id = models.UUIDField(primary_key=True, editable=False)
    key = models.TextField()
    skeleton = models.TextField()
    step_id = models.UUIDField()

    class Meta:
        constraints = [models.UniqueConstraint(fields=["key"], name="ledger_claimtombstone_once")]
        indexes = [
            models.Index(fields=["skeleton"], name="ledger_claimtombstone_looks"),
            models.Index(fields=["step_id"], name="ledger_claimtombstone_step"),
        ]

    def __str__(self) -> str:
        return self.key


class Restoration(models.Model):
    """A saga that came back: the tombstone of this number no longer answers for it."""

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    saga_id = models.UUIDField()
    seq = models.BigIntegerField()
    actor = models.CharField(max_length=200)
    at = models.DateTimeField(db_default=ClockTimestamp())

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["saga_id", "seq"], name="ledger_restoration_once")
        ]

    def __str__(self) -> str:
        return f"{self.saga_id} came back"
