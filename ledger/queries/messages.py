"""Reads of messages for pages: what was sent about one thing, and what did not arrive."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from ledger.channels import channels
from ledger.models import Message, Notice
from ledger.states import MessageState

# Nobody reads more in one sitting; the page says when there are more.
MOST = 50


def about(what: UUID) -> Sequence[Message]:
    """What was sent about a request or a saga, in the order of what it tells."""
    found = Message.objects.filter(about=what).select_related("notice")
    return list(found.order_by("notice_id", "channel")[: MOST + 1])


def is_to_be_spread(what: UUID) -> bool:
    """Whether there is news that the relay has not put on its channels yet.

    Without any channel nobody will be told but the webhook that a saga was opened with.
    """
    waiting = Notice.objects.filter(about=what, spread_at__isnull=True)
    return (waiting if channels() else waiting.filter(kind__startswith="saga.")).exists()


def undelivered() -> Sequence[Message]:
    """What did not arrive and is not tried again by itself, oldest first."""
    found = Message.objects.filter(state=MessageState.UNDELIVERED)
    return list(found.select_related("notice").order_by("id")[: MOST + 1])
