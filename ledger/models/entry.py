from __future__ import annotations

from django.contrib.postgres.indexes import BrinIndex
from django.db import models
from django.db.models.fields.json import KeyTextTransform
from django.db.models.functions import Cast

from ledger.models.fields import ClockTimestamp, uuid7
from ledger.models.saga import Saga


class Entry(models.Model):
    """One immutable fact, numbered within its saga and chained to the one before.

    The database fills `seq`, `at`, `prev_hash`, `hash` and `state` (ledger/walls.py);
    what a writer puts there is ignored. `payload` is the JSON text of an object, and
    stays as it was written: the hash is over it.
    """

    pk = models.CompositePrimaryKey("saga_id", "seq")
    # The chain's trigger holds the saga's row, and a saga leaves with its entries
    # (ledger/walls.py): a constraint would look for it again with every entry.
    saga = models.ForeignKey(
        Saga,
        on_delete=models.PROTECT,
        db_index=False,
        db_constraint=False,
        related_name="entries",
    )
    seq = models.BigIntegerField()
    kind = models.CharField(max_length=60)
    step_id = models.CharField(max_length=200, default="", blank=True)
    at = models.DateTimeField()
    actor = models.CharField(max_length=200)
    payload = models.TextField()
    state = models.CharField(max_length=20, default="", blank=True)
    prev_hash = models.CharField(max_length=64)
    hash = models.CharField(max_length=64)

    class Meta:
        indexes = [BrinIndex(fields=["at"], name="ledger_entry_at")]
        constraints = [
            # One answer a question: of two operators who press at once, one is second.
            models.UniqueConstraint(
                "saga",
                "step_id",
                KeyTextTransform("question", Cast("payload", models.JSONField())),
                condition=models.Q(kind__startswith="operator."),
                name="ledger_entry_one_answer",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.seq} {self.kind}"


class Checkpoint(models.Model):
    """An anchor over the ends of all chains that moved, itself chained to the one before."""

    id = models.BigAutoField(primary_key=True)
    at = models.DateTimeField(db_default=ClockTimestamp())
    covers_until = models.DateTimeField()
    heads = models.PositiveIntegerField()
    prev_root = models.CharField(max_length=64)
    root = models.CharField(max_length=64)

    def __str__(self) -> str:
        return f"checkpoint {self.pk}"


class CheckpointHead(models.Model):
    """The end of one saga's chain as a checkpoint saw it."""

    id = models.UUIDField(primary_key=True, default=uuid7)
    checkpoint = models.ForeignKey(Checkpoint, on_delete=models.PROTECT)
    # No constraint: an anchor stays when its saga is archived, and holds the tombstone then.
    saga = models.ForeignKey(Saga, on_delete=models.DO_NOTHING, db_constraint=False)
    seq = models.BigIntegerField()
    hash = models.CharField(max_length=64)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["checkpoint", "saga"], name="ledger_checkpoint_saga")
        ]

    def __str__(self) -> str:
        return f"{self.saga_id} at {self.seq}"
