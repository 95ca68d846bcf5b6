"""What people and machines are told: once a fact and channel, at its receiver, or visibly not."""

from __future__ import annotations

import re
from typing import Any
from urllib.parse import urlsplit

import pytest
from django.contrib.auth.models import User
from django.db import transaction
from django.test import Client

from approvals.services import deciding
from ledger.models import Message, Notice
from tests.approvalcast import claim, person, tools, waiting_case
from tests.postcast import SECRET, Mailbox, Receiver, Write, make_due, post, webhook_channel
from tests.stage import sign_in
from tests.toldcast import MAIL, end, kinds_of

__all__ = ["tools"]
pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("tools")]


class TestMail:
    def test_a_request_is_one_mail_with_everything_but_a_button(
        self, mailbox: Mailbox, channels_file: Write
    ) -> None:
        channels_file(MAIL)
        case = waiting_case(id="p1", amount=4200)
        post()
        post()
        (mail,) = mailbox.mails
        assert mail.rcpt == ["desk@example.org"]
        assert mail["Message-ID"] == f"<msg_{Message.objects.get().pk.hex}@example.org>"
        text = mail.get_content()
        for word in (
            "money.refund",
            '"amount": 4200',
            "1 of approvers",
            f"/approvals/{case.request.pk}/",
        ):
            assert word in text

    def test_the_end_answers_the_first_mail(self, mailbox: Mailbox, channels_file: Write) -> None:
        channels_file(MAIL)
        case = waiting_case()
        post()
        end(case, "rejected")
        post()
        first, second = mailbox.mails
        assert second["In-Reply-To"] == first["Message-ID"]
        assert "olivia" in second.get_content()
        assert "as agreed" in second.get_content()

    def test_members_are_those_of_the_group_with_an_address(
        self, mailbox: Mailbox, channels_file: Write
    ) -> None:
        channels_file('[channel.all]\nform = "mail"\ngroups = ["approvers"]\nmembers = true\n')
        person("olivia", "approvers", email="olivia@example.org")
        person("omar", "approvers", email="omar@example.org")
        person("gone", "approvers", email="gone@example.org", is_active=False)
        person("vera", "viewers", email="vera@example.org")
        waiting_case()
        post()
        assert mailbox.mails[0].rcpt == ["olivia@example.org", "omar@example.org"]

    def test_a_group_without_addresses_is_seen_as_undelivered(
        self, mailbox: Mailbox, channels_file: Write
    ) -> None:
        channels_file('[channel.all]\nform = "mail"\ngroups = ["approvers"]\nmembers = true\n')
        waiting_case()
        post()
        assert mailbox.mails == []
        kept = Message.objects.get()
        assert (kept.state, kept.last_error) == (
            "undelivered",
            "nobody of its groups has an address",
        )


class TestWebhook:
    def test_it_is_signed_as_the_library_verifies(
        self, receiver: Receiver, channels_file: Write
    ) -> None:
        channels_file(webhook_channel("audit"), HOOK_URL=receiver.url, HOOK_KEY=SECRET)
        case = waiting_case(id="p1", amount=4200)
        post()
        (told,) = receiver.verified()
        assert told["type"] == "approval.requested"
        assert told["data"]["approval_id"] == str(case.request.pk)
        assert told["data"]["args_digest"] == case.digest
        assert told["data"]["args"] == {"id": "p1", "amount": 4200}

    def test_every_try_has_the_same_id_and_body(
        self, receiver: Receiver, channels_file: Write
    ) -> None:
        channels_file(webhook_channel("audit"), HOOK_URL=receiver.url, HOOK_KEY=SECRET)
        answers = iter([500, 302, 204])
        receiver.answer = lambda _request: (next(answers), {"location": receiver.url + "/other"})
        waiting_case()
        for _ in range(3):
            post()
            make_due()
        assert len({(one.headers["webhook-id"], one.body, one.path) for one in receiver.got}) == 1
        assert len(receiver.verified()) == 3
        assert Message.objects.get().state == "delivered"

    def test_410_is_never_asked_again(self, receiver: Receiver, channels_file: Write) -> None:
        channels_file(webhook_channel("audit"), HOOK_URL=receiver.url, HOOK_KEY=SECRET)
        receiver.answer = lambda _request: (410, {})
        waiting_case()
        post()
        make_due()
        post()
        assert len(receiver.got) == 1
        assert Message.objects.get().state == "undelivered"


def test_case_E14_it_is_kept_before_it_is_pushed(channels_file: Write) -> None:
    """A rollback takes the notice with the fact; a commit keeps both, whoever is down."""
    channels_file(webhook_channel("audit"), HOOK_URL="http://127.0.0.1:1/", HOOK_KEY=SECRET)
    case = waiting_case()

    olivia = person("olivia", "approvers")
    with transaction.atomic():
        deciding.approve(olivia, case.request.pk, args_digest=case.digest)
        assert kinds_of(case) == ["approval.requested", "approval.approved"]
        transaction.set_rollback(True)
    assert kinds_of(case) == ["approval.requested"]
    deciding.approve(olivia, case.request.pk, args_digest=case.digest)
    assert kinds_of(case) == ["approval.requested", "approval.approved"]


def test_without_channels_nothing_is_owed() -> None:
    waiting_case()
    post()
    assert Notice.objects.filter(spread_at__isnull=True).count() == 0
    assert Message.objects.count() == 0
    assert claim() == []


def link_in(mail: Any) -> str:
    (found,) = re.findall(r"^http://\S+", mail.get_content(), re.MULTILINE)
    return str(urlsplit(found).path)


class TestCaseF16:
    """A mail scanner opens every link: with or without a session, nothing is decided by it."""

    def test_opening_the_link_decides_nothing_and_a_press_still_does(
        self, mailbox: Mailbox, channels_file: Write
    ) -> None:
        """Case F16: HEAD and GET, twice each, on every address; then the form, once."""
        channels_file(MAIL)
        case = waiting_case()
        post()
        link = link_in(mailbox.mails[0])
        olivia = person("olivia", "approvers")
        scanner, signed_in = Client(), Client(enforce_csrf_checks=True)
        sign_in(signed_in, User.objects.get(pk=olivia.user_id))
        for client in (scanner, signed_in):
            for address in (link, f"{link}decide", f"{link}decide?answer=approve&understood=yes"):
                for _ in range(2):
                    assert client.head(address).status_code in {200, 302}
                    assert client.get(address).status_code in {200, 302}
        assert case.request.state == "pending"
        assert case.request.decisions.count() == 0
        assert case.kinds() == ["approval.requested"]
        page = signed_in.get(link).content.decode()
        token = re.findall(r'name="csrfmiddlewaretoken" value="([^"]+)"', page)[0]
        signed_in.post(
            f"{link}decide",
            {
                "csrfmiddlewaretoken": token,
                "answer": "approve",
                "understood": "yes",
                "args_digest": case.digest,
            },
        )
        assert case.request.state == "approved"

    def test_every_form_has_one_link_and_it_is_that_page(
        self, receiver: Receiver, channels_file: Write
    ) -> None:
        channels_file(
            webhook_channel("chat", form="slack") + webhook_channel("room", form="teams"),
            HOOK_URL=receiver.url,
        )
        case = waiting_case()
        post()
        for one in receiver.got:
            links = set(re.findall(r'"url":"([^"]+)"', one.body))
            assert links == {f"http://127.0.0.1:8400/approvals/{case.request.pk}/"}


def test_case_E4_a_decision_and_its_message_are_one_commit_and_the_message_is_retryable(
    receiver: Receiver, channels_file: Write
) -> None:
    """The start of the step and the telling of it hang on no receiver's answer."""
    channels_file(webhook_channel("audit"), HOOK_URL=receiver.url, HOOK_KEY=SECRET)
    receiver.answer = lambda _request: (500, {})
    case = waiting_case()
    end(case, "approved")
    assert kinds_of(case) == ["approval.requested", "approval.approved"]
    (assignment,) = claim()
    assert assignment.step == case.step
    post()
    receiver.answer = lambda _request: (204, {})
    for _ in range(2):
        make_due()
        post()
    assert [one.json["type"] for one in receiver.got] == [
        "approval.requested",
        "approval.requested",
        "approval.approved",
    ]
    assert case.request.decisions.count() == 1
