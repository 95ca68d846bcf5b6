from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from django.conf import settings
from django.db import models
from django.db.models import F, Q, Value
from django.db.models.functions import Coalesce

from approvals.quorum import Need
from approvals.states import Answer, ApprovalState
from approvals.surface import NAMES
from ledger.models.fields import ClockTimestamp, state_constraint, state_field, uuid7
from ledger.states import Direction, Tier


class Approval(models.Model):
    """The question put to people about one direction of one step, and what became of it.

    Everything up to `created_at` is what people are shown and what their answer is bound to;
    the database freezes it (approvals/walls.py). `expires_at` is when the question ends and
    `yes_until` when a yes does: both `lasts` long. `ended_at` is when it came to the state it
    is in. `runs_from` is when a yes can no longer be taken back by `delay` alone: nothing runs
    before it. `over_limits` names the limits that a yes lets it pass; after `expires_at` the
    group `escalate_to` is asked. `used_at` is written by the database when an attempt starts
    under this yes.
    """

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    step = models.ForeignKey("ledger.Step", on_delete=models.PROTECT, related_name="approvals")
    saga = models.ForeignKey("ledger.Saga", on_delete=models.PROTECT, related_name="approvals")
    direction = models.CharField(max_length=10, choices=[(d.value, d.value) for d in Direction])
    tool = models.CharField(max_length=200)
    tool_version = models.CharField(max_length=100)
    tool_digest = models.CharField(max_length=64)
    args_text = models.TextField()
    args_digest = models.CharField(max_length=64)
    idempotency_key = models.CharField(max_length=90)
    rule = models.CharField(max_length=200)
    policy_digest = models.CharField(max_length=64)
    needs = models.JSONField()
    lasts = models.DurationField()
    require_reason = models.BooleanField(default=False)
    escalate_to = models.CharField(max_length=150, default="", db_default="", blank=True)
    remind = models.DurationField(null=True, blank=True)
    delay = models.DurationField(default=timedelta, db_default=timedelta())
    over_limits = models.JSONField(
        default=list, db_default=Value([], models.JSONField()), blank=True
    )
    why = models.TextField(default="", blank=True)
    expires_at = models.DateTimeField()
    created_at = models.DateTimeField(db_default=ClockTimestamp())
    state = state_field(ApprovalState, default=ApprovalState.PENDING)
    decided_at = models.DateTimeField(null=True, blank=True)
    ended_at = models.DateTimeField(null=True, blank=True)
    ended_why = models.TextField(default="", blank=True)
    yes_until = models.DateTimeField(null=True, blank=True)
    runs_from = models.DateTimeField(null=True, blank=True)
    used_at = models.DateTimeField(null=True, blank=True)
    remind_at = models.DateTimeField(null=True, blank=True)
    reminders = models.PositiveIntegerField(default=0, db_default=0)
    superseded_by = models.ForeignKey(
        "self", null=True, blank=True, on_delete=models.PROTECT, related_name="supersedes"
    )

    # Set where a request is read to be shown (approvals/queries.py): the database's clock,
    # and the decisions in their order.
    now: datetime
    said: list[Decision]

    class Meta:
        permissions = [("break_glass", "May say yes alone, in an incident")]
        constraints = [
            state_constraint("state", ApprovalState, "approvals_approval_state_known"),
            models.UniqueConstraint(
                fields=["step", "direction"],
                condition=Q(state="pending"),
                name="approvals_one_question_at_a_time",
            ),
            models.CheckConstraint(
                condition=~Q(state="approved")
                | Q(
                    yes_until__isnull=False,
                    decided_at__isnull=False,
                    runs_from__gte=models.F("decided_at"),
                ),
                name="approvals_yes_ends",
            ),
            models.CheckConstraint(
                condition=Q(state="pending", ended_at__isnull=True)
                | (~Q(state="pending") & Q(ended_at__isnull=False)),
                name="approvals_approval_ended_at",
            ),
            # No question without a deadline, however it is written (case D15).
            models.CheckConstraint(
                condition=Q(expires_at__gt=models.F("created_at")), name="approvals_has_deadline"
            ),
        ]
        indexes = [
            # The newest request of a step, and the wall's look at every claim.
            models.Index(fields=["step", "direction", "-id"], name="approvals_of_step"),
            models.Index(fields=["state", "-id"], name="approvals_by_state"),
            models.Index(fields=["expires_at"], condition=Q(state="pending"), name="approvals_due"),
            models.Index(
                fields=["remind_at"], condition=Q(state="pending"), name="approvals_to_remind"
            ),
        ]

    def __str__(self) -> str:
        return f"{self.direction} of {self.tool} ({self.state})"

    def state_seen_at(self, now: datetime) -> ApprovalState:
        """The state that people are told: a question past its end is over, swept or not."""
        if self.state == ApprovalState.PENDING and self.expires_at <= now:
            return ApprovalState.EXPIRED
        return ApprovalState(self.state)

    @property
    def over_at(self) -> datetime:
        """When it came to the state it is in; the database's clock now, while it waits."""
        return self.ended_at or self.now

    @property
    def tier(self) -> Tier:
        """Of the very tool that is asked about: an alternative has its own."""
        return Tier(self._of_its_tool("tier"))

    @property
    def blast_radius(self) -> str:
        """Of the very tool that is asked about, as `tier`."""
        return str(self._of_its_tool("blast_radius"))

    def _of_its_tool(self, name: str) -> Any:
        own = getattr(self.step, name)
        if self.tool_digest == self.step.tool_version_id:
            return own
        kept = {one.get("tool_digest"): one[name] for one in self.step.alternatives}
        return kept.get(self.tool_digest, own)

    @property
    def is_final(self) -> bool:
        """Whether a yes lets something happen that nothing can take back.

        A correction is one more effect, and has no undo of its own.
        """
        if self.direction == Direction.FORWARD:
            return self.tier != Tier.COMPENSATABLE
        return self.direction == Direction.CORRECT

    def asked_needs(self) -> tuple[Need, ...]:
        """Who is needed, as values."""
        return tuple(Need(need["group"], need["count"]) for need in self.needs)


class Decision(models.Model):
    """One person's answer. Never changed and never deleted (approvals/walls.py).

    `username` stays readable and the vote stays counted as given, whatever becomes of the
    account (case F10); whether it still suffices is counted again when the step is claimed.
    `args_digest` is what the person was shown, `via` and `address` where the answer came from,
    `checked_at` when the session's password was last asked for. `stands_for` is the person in
    whose right it was given, when that is another (`delegation`). `incident` says that the
    glass was broken for it.
    """

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    approval = models.ForeignKey(Approval, on_delete=models.PROTECT, related_name="decisions")
    user = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.PROTECT, related_name="decisions"
    )
    username = models.CharField(max_length=150)
    answer = models.CharField(max_length=20, choices=[(a.value, a.value) for a in Answer])
    reason = models.TextField(default="", blank=True)
    args_digest = models.CharField(max_length=64)
    via = models.CharField(max_length=10, choices=[(name, name) for name in NAMES])
    address = models.CharField(max_length=64, default="", db_default="", blank=True)
    checked_at = models.DateTimeField(null=True, blank=True)
    delegation = models.ForeignKey(
        "Delegation", null=True, blank=True, on_delete=models.PROTECT, related_name="decisions"
    )
    stands_for = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, blank=True, on_delete=models.PROTECT, related_name="+"
    )
    stands_for_name = models.CharField(max_length=150, default="", db_default="", blank=True)
    incident = models.CharField(max_length=200, default="", db_default="", blank=True)
    at = models.DateTimeField(db_default=ClockTimestamp())

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["approval", "user", "answer"],
                condition=Q(incident=""),
                name="approvals_decision_once",
            ),
            models.UniqueConstraint(
                fields=["approval"], condition=~Q(incident=""), name="approvals_glass_once"
            ),
            # Nobody's right counts twice, whoever uses it.
            models.UniqueConstraint(
                "approval",
                "answer",
                Coalesce("stands_for", "user"),
                condition=Q(incident=""),
                name="approvals_right_used_once",
            ),
            models.CheckConstraint(
                condition=Q(delegation__isnull=True, stands_for__isnull=True, stands_for_name="")
                | Q(delegation__isnull=False, stands_for__isnull=False)
                & ~Q(stands_for_name="")
                & ~Q(stands_for=F("user")),
                name="approvals_both_names",
            ),
            models.CheckConstraint(
                condition=Q(incident="") | Q(answer="approve") & ~Q(reason=""),
                name="approvals_glass_has_reason",
            ),
            models.CheckConstraint(
                condition=Q(answer__in=[answer.value for answer in Answer]),
                name="approvals_decision_answer_known",
            ),
            # A no without a word helps nobody (design section 6).
            models.CheckConstraint(
                condition=Q(answer="approve") | ~Q(reason=""), name="approvals_no_has_reason"
            ),
        ]
        indexes = [models.Index(fields=["user", "-id"], name="approvals_decisions_of")]

    def __str__(self) -> str:
        return f"{self.answer} by {self.username}"
