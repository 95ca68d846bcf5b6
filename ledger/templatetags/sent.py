"""What was sent about a request or a saga, to whom, and whether it arrived."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from uuid import UUID

from django import template
from django.utils.safestring import SafeString

from ledger.queries import messages
from ledger.states import MESSAGE_MEANING, MessageState
from ledger.templatetags.console import badge

register = template.Library()

TONE: Mapping[MessageState, str] = {
    MessageState.WAITING: "live",
    MessageState.DELIVERED: "good",
    MessageState.UNDELIVERED: "bad",
}
ICON: Mapping[MessageState, str] = {
    MessageState.WAITING: "queued",
    MessageState.DELIVERED: "committed",
    MessageState.UNDELIVERED: "failed",
}
# The facts in words; a kind that is not here is shown as it is.
NEWS = {
    "approval.requested": "The request",
    "approval.reminder": "A reminder",
    "approval.approved": "It was approved",
    "approval.rejected": "It was rejected",
    "approval.change_requested": "A change was asked for",
    "approval.expired": "It expired",
    "approval.superseded": "It was replaced",
    "approval.cancelled": "It was withdrawn",
    "saga.completed": "The saga is completed",
    "saga.compensated": "The saga ended backwards",
    "saga.stuck": "The saga is stuck",
}


@register.filter
def message_badge(state: str) -> SafeString:
    known = MessageState(state)
    return badge(known, TONE[known], ICON[known], MESSAGE_MEANING[known])


@register.filter
def news(kind: str) -> str:
    return NEWS.get(kind, kind)


@register.inclusion_tag("ledger/messages.html")
def messages_about(what: UUID) -> dict[str, Any]:
    """The card of everything that was sent about one thing."""
    found = messages.about(what)
    return {
        "sent": found[: messages.MOST],
        "more": len(found) > messages.MOST,
        "is_to_come": messages.is_to_be_spread(what),
    }
