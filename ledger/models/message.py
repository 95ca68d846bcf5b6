from __future__ import annotations

from django.db import models
from django.db.models import Q

from ledger.models.fields import ClockTimestamp, state_constraint, state_field, uuid7
from ledger.models.saga import Saga
from ledger.states import MessageState


class Notice(models.Model):
    """A fact that somebody is to be told, committed together with it (ledger/messagewalls.py).

    `about` is the id of the request, or of the saga itself; `round` tells apart what may
    happen to it more than once (the second reminder, stuck again). Who is told, the fact itself
    says: `groups` is empty, and is here only because the walls name it. The relay spreads it: one
    message a channel.
    """

    id = models.BigAutoField(primary_key=True)
    # No constraint: an archived saga leaves, and what was told about it stays.
    saga = models.ForeignKey(
        Saga,
        on_delete=models.DO_NOTHING,
        related_name="+",
        db_index=False,
        db_constraint=False,
    )
    about = models.UUIDField()
    kind = models.CharField(max_length=40)
    round = models.PositiveBigIntegerField(default=0)
    groups = models.JSONField(default=list)
    at = models.DateTimeField(db_default=ClockTimestamp())
    spread_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        constraints = [
            # One telling of one fact, whoever tells it, and however often.
            models.UniqueConstraint(fields=["about", "kind", "round"], name="ledger_notice_once"),
        ]
        indexes = [
            models.Index(
                fields=["id"], condition=Q(spread_at__isnull=True), name="ledger_notice_to_spread"
            ),
        ]

    def __str__(self) -> str:
        return f"{self.kind} of {self.about}"


class Message(models.Model):
    """One notice on one channel: what is sent, to whom, and whether it arrived.

    `content` is masked and complete, so that every try sends the same under the same id;
    `recipients` are as people may read them (an address list, a host), never a secret.
    A claim shows its `token`; `tries` counts claims, so a sender that dies has used one up.
    """

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    notice = models.ForeignKey(
        Notice, on_delete=models.PROTECT, related_name="messages", db_index=False
    )
    about = models.UUIDField()
    channel = models.CharField(max_length=120)
    form = models.CharField(max_length=10)
    recipients = models.JSONField(default=list)
    content = models.JSONField()
    state = state_field(MessageState, default=MessageState.WAITING)
    tries = models.PositiveIntegerField(default=0)
    due_at = models.DateTimeField(db_default=ClockTimestamp())
    lease_until = models.DateTimeField(null=True, blank=True)
    token = models.UUIDField(null=True, blank=True)
    last_error = models.TextField(default="", blank=True)
    created_at = models.DateTimeField(db_default=ClockTimestamp())
    delivered_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        constraints = [
            state_constraint("state", MessageState, "ledger_message_state_known"),
            models.UniqueConstraint(fields=["notice", "channel"], name="ledger_message_once"),
            models.CheckConstraint(
                condition=Q(state="delivered", delivered_at__isnull=False)
                | (~Q(state="delivered") & Q(delivered_at__isnull=True)),
                name="ledger_message_delivered_at",
            ),
        ]
        indexes = [
            models.Index(
                fields=["channel", "due_at"],
                condition=Q(state="waiting"),
                name="ledger_message_due",
            ),
            models.Index(fields=["about", "channel", "notice"], name="ledger_message_about"),
            models.Index(
                fields=["id"], condition=Q(state="undelivered"), name="ledger_message_undelivered"
            ),
        ]

    def __str__(self) -> str:
        return f"{self.form} to {self.channel} ({self.state})"
