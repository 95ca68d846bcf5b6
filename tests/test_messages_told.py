"""What is told of a request, and to whom: each end, each reminder, a broken glass."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest
from django.contrib.auth.models import User
from django.core.management import call_command

from approvals.models import Review
from approvals.services import deciding, reviewing, spreading
from ledger.bearer import Bearer
from ledger.models import Message
from tests.approvalcast import person, tools, waiting_case
from tests.postcast import SECRET, Mailbox, Receiver, Write, post, webhook_channel
from tests.toldcast import MAIL, end

__all__ = ["tools"]
pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("tools")]


ENDS = ["approved", "rejected", "change_requested", "expired", "superseded", "cancelled"]


@pytest.mark.parametrize("how", ENDS)
def test_case_G6_every_end_follows_up_on_every_channel(
    how: str, receiver: Receiver, mailbox: Mailbox, channels_file: Write
) -> None:
    """Case G6: mail, webhook and chat, on each terminal state, expiry too."""
    channels_file(
        MAIL + webhook_channel("audit") + webhook_channel("chat", form="slack"),
        HOOK_URL=receiver.url,
        HOOK_KEY=SECRET,
    )
    case = waiting_case()
    first: UUID = case.request.pk
    post()
    end(case, how)
    about = case.request.pk if how == "expired" else first
    post()
    told = Message.objects.filter(about=about).order_by("notice_id")
    by_channel: dict[str, list[str]] = {}
    for message in told:
        assert message.state == "delivered"
        by_channel.setdefault(message.channel, []).append(message.content["type"])
    expected = ["approval.requested", f"approval.{how}"]
    assert by_channel == {"desk": expected, "audit": expected, "chat": expected}


DESK_AND_CALL = """
[channel.desk]
form = "mail"
groups = ["approvers"]
to = ["desk@example.org"]
[channel.call]
form = "mail"
groups = ["oncall"]
to = ["call@example.org"]
"""


def test_a_broken_glass_is_told_to_those_who_were_passed_over_and_to_those_on_call(
    mailbox: Mailbox, receiver: Receiver, channels_file: Write
) -> None:
    """Loud means a message of its own, once a channel; and so is the end of its review."""
    chat = webhook_channel("chat", form="slack") + webhook_channel("audit")
    channels_file(DESK_AND_CALL + chat, HOOK_URL=receiver.url, HOOK_KEY=SECRET)
    person("gia")
    call_command("break_glass", "gia")
    gia = Bearer(user_id=User.objects.get(username="gia").pk, username="gia")
    case = waiting_case(id="p1", amount=4200)
    case.ask_again(needs={"approvers": 2})
    case.request.refresh_from_db()
    told = {"args_digest": case.digest, "incident": "INC-7", "reason": "Payments are down"}
    deciding.break_glass(gia, case.request.pk, **told)
    for _ in range(2):
        post()
    loud = Message.objects.filter(content__type="approval.break_glass")
    assert sorted(loud.values_list("channel", flat=True)) == ["audit", "call", "chat", "desk"]
    (called,) = [mail for mail in mailbox.mails if mail.rcpt == ["call@example.org"]]
    assert "gia alone approved" in called["Subject"].replace("\n", "")
    for word in ("INC-7", "Payments are down", "2 of approvers", "somebody else has to review"):
        assert word in called.get_content()
    (data,) = [one["data"] for one in audited(receiver) if one["type"] == "approval.break_glass"]
    assert (data["by"], data["incident"], data["state"]) == ("gia", "INC-7", "approved")
    oskar = person("oskar", "oncall")
    reviewing.close(oskar, Review.objects.get().pk, finding="It was right.")
    post()
    assert "oskar closed the review" in mailbox.mails[-1]["Subject"].replace("\n", "")
    assert "It was right." in mailbox.mails[-1].get_content()


def audited(receiver: Receiver) -> list[Any]:
    """What came in the webhook's own form."""
    return [one.json for one in receiver.got if "type" in one.json]


def test_case_G8_a_cancelled_saga_closes_its_requests_and_says_so(
    receiver: Receiver, channels_file: Write
) -> None:
    """Case G8."""
    channels_file(webhook_channel("audit"), HOOK_URL=receiver.url, HOOK_KEY=SECRET)
    case = waiting_case()
    end(case, "cancelled")
    assert case.request.state == "cancelled"
    post()
    assert [told["type"] for told in receiver.verified()] == [
        "approval.requested",
        "approval.cancelled",
    ]


def test_each_reminder_is_told_once(receiver: Receiver, channels_file: Write) -> None:
    channels_file(webhook_channel("desk"), HOOK_URL=receiver.url, HOOK_KEY=SECRET)
    case = waiting_case()
    request = case.request.pk
    assert spreading.remind(request, 1)
    assert not spreading.remind(request, 1)
    assert spreading.remind(request, 2)
    end(case, "rejected")
    post()
    told = [
        (m.channel, m.content["type"]) for m in Message.objects.order_by("notice_id", "channel")
    ]
    assert told == [
        ("desk", "approval.requested"),
        ("desk", "approval.reminder"),
        ("desk", "approval.reminder"),
        ("desk", "approval.rejected"),
    ]
    assert len(receiver.verified()) == 4
