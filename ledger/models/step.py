from __future__ import annotations

from typing import Any

from django.db import models
from django.db.models import F, Func, Q, Value

from ledger.models.fields import ClockTimestamp, state_field, uuid7
from ledger.models.saga import Saga
from ledger.states import STEP_FINISHED, BlastRadius, StepState, Tier


class ToolVersion(models.Model):
    """What a tool was when a step was proposed. Never holds a secret."""

    digest = models.CharField(max_length=64, primary_key=True)
    key = models.CharField(max_length=200)
    version = models.CharField(max_length=100)
    definition = models.JSONField()
    first_seen_at = models.DateTimeField(db_default=ClockTimestamp())

    def __str__(self) -> str:
        return f"{self.key} {self.version}"


class Step(models.Model):
    """One intended side effect. What it will do is frozen when it is proposed.

    `args_text` is the canonical text (RFC 8785) that the digest is over and that workers
    run; `args` is the same value as jsonb, for reading and searching only. `executed_seq`
    is the number of the entry that recorded the effect: undoing goes down this order.
    """

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    # The unique constraints below begin with the saga: an index of its own would only mislead.
    saga = models.ForeignKey(Saga, on_delete=models.PROTECT, related_name="steps", db_index=False)
    step_id = models.CharField(max_length=200)
    position = models.IntegerField()
    revision = models.IntegerField(default=1)
    tool = models.CharField(max_length=200)
    # Nobody looks for steps by these three, rows are never deleted, and every index is written
    # anew at each change of state.
    tool_version = models.ForeignKey(ToolVersion, on_delete=models.PROTECT, db_index=False)
    tier = models.CharField(max_length=20, choices=[(tier, tier) for tier in Tier])
    blast_radius = models.CharField(max_length=10, choices=[(b, b) for b in BlastRadius])
    args_text = models.TextField()
    args = models.JSONField()
    fingerprint = models.CharField(max_length=64)
    idempotency_key = models.CharField(max_length=64)
    effect_key = models.TextField(default="", blank=True)
    resource = models.TextField(default="", blank=True)
    reason = models.TextField(default="", blank=True)
    # No constraint: the other step's saga may have been archived, and its tombstone has the id.
    repeat_of = models.ForeignKey(
        "self",
        null=True,
        blank=True,
        on_delete=models.DO_NOTHING,
        related_name="+",
        db_constraint=False,
        db_index=False,
    )
    duplicate_of = models.ForeignKey(
        "self",
        null=True,
        blank=True,
        on_delete=models.DO_NOTHING,
        related_name="+",
        db_constraint=False,
        db_index=False,
    )
    alternatives = models.JSONField(default=list)
    alternative = models.IntegerField(default=0)
    verdict = models.CharField(max_length=10)
    verdict_rule = models.CharField(max_length=200)
    policy_digest = models.CharField(max_length=64)
    held_why = models.TextField(default="", blank=True)
    # Superseded versions of what it does, oldest first: kept, so that they are recognised.
    former = models.JSONField(
        default=list, db_default=models.Value([], output_field=models.JSONField())
    )
    confirmed_tool = models.CharField(max_length=64, default="", blank=True)
    state = state_field(StepState)
    fence = models.IntegerField(default=0)
    attempts = models.IntegerField(default=0)
    reclaims = models.IntegerField(default=0)
    result_text = models.TextField(null=True, blank=True)  # noqa: DJ001 - null: no result yet
    error = models.JSONField(null=True, blank=True)
    residue = models.BooleanField(default=False)
    created_at = models.DateTimeField(db_default=ClockTimestamp())
    executed_at = models.DateTimeField(null=True, blank=True)
    executed_seq = models.BigIntegerField(null=True, blank=True)
    finished_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        # States, counters and what may never run again: a trigger's (ledger/walls.py), because a
        # CHECK is read from its text in every statement.
        constraints = [
            models.UniqueConstraint(fields=["saga", "step_id"], name="ledger_step_identity"),
            models.UniqueConstraint(fields=["saga", "position"], name="ledger_step_position"),
        ]
        indexes = [
            models.Index(fields=["saga", "tool", "fingerprint"], name="ledger_step_twin"),
            # Few steps have ever run, or been, anything but their first choice; these are looked
            # through for twins.
            models.Index(
                fields=["saga"],
                condition=Q(alternative__gt=0) | Q(revision__gt=1),
                name="ledger_step_other_versions",
            ),
            models.Index(
                fields=["id"],
                condition=~Q(held_why="") & Q(state__in=sorted(STEP_FINISHED)),
                name="ledger_step_contradicted",
            ),
            models.Index(
                fields=["state", "id"],
                condition=Q(
                    state__in=["unknown", "stuck", "executing", "change_requested", "compensating"]
                ),
                name="ledger_step_attention",
            ),
            # When a tool's undo last worked for real: one look for each tool of a page.
            models.Index(
                fields=["tool", "-finished_at"],
                condition=Q(state__in=["compensated", "corrected"]),
                name="ledger_step_undone",
            ),
            # The same of steps that ran another choice than their first: its tool is in the list.
            # (Keywords in the order of the alphabet, as migrations write them: it is compared.)
            models.Index(
                Func(
                    Func(
                        *(F("alternatives"), F("alternative") - 1),
                        arg_joiner=" -> ",
                        template="(%(expressions)s)",
                        output_field=models.JSONField(),
                    ),
                    Value("tool"),
                    arg_joiner=" ->> ",
                    template="(%(expressions)s)",
                    output_field=models.TextField(),
                ),
                F("finished_at").desc(),
                condition=Q(alternative__gt=0, state__in=["compensated", "corrected"]),
                name="ledger_step_undone_other",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.step_id} ({self.tool})"

    @property
    def runs_tool(self) -> str:
        """The tool of what it runs: of an alternative, once that has been taken."""
        return str(self._of_what_runs("tool"))

    @property
    def runs_tier(self) -> Tier:
        """The tier of that tool: what undoing it would take."""
        return Tier(self._of_what_runs("tier"))

    @property
    def runs_digest(self) -> str:
        """The digest of that tool's version."""
        return str(self._of_what_runs("tool_digest"))

    def _of_what_runs(self, name: str) -> Any:
        if not self.alternative:
            return self.tool_version_id if name == "tool_digest" else getattr(self, name)
        return self.alternatives[self.alternative - 1][name]
