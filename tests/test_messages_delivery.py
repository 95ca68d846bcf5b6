"""Delivery is an outbox: never lost, never in anybody's way, never twice at once, and seen."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
from django.test import Client

from approvals.services import deciding, spreading
from ledger import storage
from ledger.models import Message
from ledger.models.fields import uuid7
from ledger.outcomes import Done
from ledger.postman import LANES, Postman
from ledger.services import delivering, telling, tokens
from ledger.services.recording import Finished, record
from saga_console.home import BASE_DIR
from tests.approvalcast import claim, in_threads, person, tools, waiting_case
from tests.postcast import SECRET, Mailbox, Receiver, Write, make_due, post, webhook_channel

__all__ = ["tools"]
pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("tools")]


@pytest.fixture
def audit(receiver: Receiver, channels_file: Write) -> Receiver:
    """A webhook for what approvers are asked."""
    channels_file(webhook_channel("audit"), HOOK_URL=receiver.url, HOOK_KEY=SECRET)
    return receiver


@pytest.fixture
def stalled(audit: Receiver) -> Iterator[threading.Event]:
    """The receiver takes every request and answers none before this is set."""
    let_go = threading.Event()

    def hang(_request: object) -> tuple[int, dict[str, str]]:
        let_go.wait(30)
        return 204, {}

    audit.answer = hang
    yield let_go
    let_go.set()


@pytest.fixture
def postman(stalled: threading.Event) -> Iterator[threading.Thread]:
    """A relay's sender, not started yet; it ends before the database does."""
    stop = threading.Event()
    thread = threading.Thread(target=Postman().run, args=[stop], daemon=True)
    yield thread
    stop.set()
    stalled.set()
    thread.join(20)


def until(holds: object, within_s: float = 15.0) -> None:
    deadline = time.monotonic() + within_s
    while not holds():  # type: ignore[operator]
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_a_receiver_that_hangs_slows_no_decision_and_no_step(
    postman: threading.Thread, audit: Receiver
) -> None:
    """Everything between question and recorded effect happens while the receiver is silent."""
    case = waiting_case()
    spreading.spread()
    postman.start()
    until(lambda: audit.got)
    began = time.monotonic()
    deciding.approve(person("olivia", "approvers"), case.request.pk, args_digest=case.digest)
    (assignment,) = claim()
    record(uuid7(), [Finished(assignment, Done({"id": "re_1"}))])
    assert spreading.spread() == 1
    took = time.monotonic() - began
    assert case.row.state == "committed"
    assert took < 5, "the receiver held up the work"
    assert Message.objects.filter(state="delivered").count() == 0


def test_a_hanging_channel_leaves_the_others_their_threads(
    postman: threading.Thread, audit: Receiver, mailbox: Mailbox, channels_file: Write
) -> None:
    mail = '[channel.desk]\nform = "mail"\ngroups = ["approvers"]\nto = ["desk@example.org"]\n'
    channels_file(mail + webhook_channel("audit"), HOOK_URL=audit.url, HOOK_KEY=SECRET)
    for _ in range(5):
        waiting_case()
    spreading.spread()
    postman.start()
    until(lambda: len(mailbox.mails) == 5)
    assert len(audit.got) == LANES


def test_two_relays_never_send_one_twice_at_the_same_time(audit: Receiver) -> None:
    for _ in range(20):
        waiting_case()
    in_threads([spreading.spread for _ in range(4)])
    assert Message.objects.count() == 20
    found = in_threads([Postman().drain for _ in range(4)])
    assert found == [None] * 4
    ids = [one.headers["webhook-id"] for one in audit.got]
    assert len(ids) == len(set(ids)) == 20


def test_a_claim_is_had_by_one(audit: Receiver) -> None:
    waiting_case()
    spreading.spread()
    found = in_threads([lambda: delivering.claim("audit", 5) for _ in range(8)])
    assert sum(map(len, found)) == 1


def test_a_sender_that_died_is_followed_by_another_when_its_lease_ends(audit: Receiver) -> None:
    waiting_case()
    spreading.spread()
    (lost,) = delivering.claim("audit", 1)
    post()
    assert audit.got == []
    storage.execute("UPDATE ledger_message SET lease_until = clock_timestamp() - interval '1 s'")
    post()
    assert len(audit.got) == 1
    # The one that was thought dead comes back: its word changes nothing.
    assert not delivering.delivered(lost.id, lost.token)
    assert not delivering.failed(lost.id, lost.token, 1, "late", again=True)
    assert Message.objects.get().state == "delivered"


def test_what_follows_up_never_overtakes(audit: Receiver) -> None:
    audit.answer = lambda _request: (503, {})
    case = waiting_case()
    post()
    deciding.approve(person("olivia", "approvers"), case.request.pk, args_digest=case.digest)
    post()
    assert [one.json["type"] for one in audit.got] == ["approval.requested"]
    audit.answer = lambda _request: (204, {})
    make_due()
    post()
    post()
    assert [one.json["type"] for one in audit.got] == [
        "approval.requested",
        "approval.requested",
        "approval.approved",
    ]


def test_retry_after_is_a_floor_and_the_wait_is_the_databases(audit: Receiver) -> None:
    audit.answer = lambda _request: (429, {"retry-after": "900"})
    waiting_case()
    post()
    wait = storage.the_row(
        "SELECT extract(epoch FROM due_at - clock_timestamp())::float AS s FROM ledger_message"
    ).s
    assert 850 < wait <= 900


def test_tries_are_bounded_and_a_press_starts_them_anew(audit: Receiver) -> None:
    """E4's other half: what could not be told is seen, and one press from told."""
    audit.answer = lambda _request: (500, {})
    waiting_case()
    for _ in range(delivering.MOST_TRIES + 3):
        post()
        make_due()
    assert len(audit.got) == delivering.MOST_TRIES
    message = Message.objects.get()
    assert (message.state, message.tries) == ("undelivered", delivering.MOST_TRIES)
    client = Client()
    client.force_login(tokens.seat_operator("oskar", group="oncall", password="a long password 9"))
    shown = client.get("/attention/").content.decode()
    assert "Undelivered messages" in shown
    assert "it answered 500" in shown
    audit.answer = lambda _request: (204, {})
    resend = f"/attention/messages/{message.pk}/resend"
    assert client.get(resend).status_code == 405
    assert client.post(resend).status_code == 302
    post()
    assert Message.objects.get().state == "delivered"
    assert len({one.headers["webhook-id"] for one in audit.got}) == 1
    again = client.post(resend, follow=True).content.decode()
    assert "nothing had to be done" in again
    assert "Undelivered messages" not in again


def test_a_viewer_cannot_press(audit: Receiver) -> None:
    audit.answer = lambda _request: (410, {})
    waiting_case()
    post()
    client = Client()
    client.force_login(tokens.seat_operator("vera", group="viewers", password="a long password 9"))
    client.post(f"/attention/messages/{Message.objects.get().pk}/resend")
    assert Message.objects.get().state == "undelivered"


def test_a_sender_that_dies_with_the_last_try_is_seen(audit: Receiver) -> None:
    waiting_case()
    spreading.spread()
    storage.execute("UPDATE ledger_message SET tries = %s", [delivering.MOST_TRIES - 1])
    assert len(delivering.claim("audit", 1)) == 1
    storage.execute("UPDATE ledger_message SET lease_until = clock_timestamp() - interval '1 s'")
    post()
    assert audit.got == []
    assert Message.objects.get().state == "undelivered"


def test_a_channel_that_is_gone_is_tried_and_said(audit: Receiver, channels_file: Write) -> None:
    waiting_case()
    spreading.spread()
    channels_file("")
    post()
    assert "no channel audit" in Message.objects.get().last_error


def test_one_bad_notice_stops_no_other(audit: Receiver) -> None:
    case = waiting_case()
    telling.tell(case.saga, uuid7(), "approval.requested")  # about nothing
    waiting_case()
    post()
    assert len(audit.got) == 2


def test_a_mail_server_that_refuses_for_good_is_believed(
    mailbox: Mailbox, channels_file: Write
) -> None:
    mail = '[channel.desk]\nform = "mail"\ngroups = ["*"]\nto = ["desk@example.org"]\n'
    channels_file(mail)
    mailbox.refuse = "451 come back later"
    waiting_case()
    post()
    assert Message.objects.get().state == "waiting"
    mailbox.refuse = "554 never"
    make_due()
    post()
    message = Message.objects.get()
    assert (message.state, message.tries) == ("undelivered", 2)
    assert "554" in message.last_error


def test_the_request_page_says_who_was_told_and_whether_it_arrived(audit: Receiver) -> None:
    case = waiting_case()
    client = Client()
    client.force_login(tokens.seat_operator("oskar", group="oncall", password="a long password 9"))
    address = f"/approvals/{case.request.pk}/"
    assert "Nothing has been sent yet" in client.get(address).content.decode()
    audit.answer = lambda _request: (500, {})
    post()
    page = client.get(address).content.decode()
    assert "audit" in page
    assert "127.0.0.1" in page
    assert "it answered 500" in page
    audit.answer = lambda _request: (204, {})
    make_due()
    post()
    page = client.get(address).content.decode()
    assert "it answered 500" not in page
    assert "delivered" in page


def test_relays_as_processes_send_each_message_once(
    audit: Receiver, console_env: dict[str, str], settings: Any, redis_client: object
) -> None:
    """The real thing: two `manage.py relay`, and nothing else that sends."""
    environ = console_env | {
        "SAGA_CHANNELS": settings.SAGA_CHANNELS,
        "SAGA_TOOLS": settings.SAGA_TOOLS,
        "SAGA_URL": "https://console.example.org",
        "HOOK_URL": audit.url,
        "HOOK_KEY": SECRET,
    }
    command = [sys.executable, "manage.py", "relay"]
    relays = [subprocess.Popen(command, cwd=BASE_DIR, env=environ) for _ in range(2)]
    try:
        cases = [waiting_case() for _ in range(3)]
        olivia = person("olivia", "approvers")
        deciding.approve(olivia, cases[0].request.pk, args_digest=cases[0].digest)
        until(lambda: Message.objects.filter(state="delivered").count() == 4, within_s=60)
    finally:
        for relay in relays:
            relay.terminate()
        assert [relay.wait(30) for relay in relays] == [0, 0]
    told = audit.verified()
    assert sorted(one["type"] for one in told) == ["approval.approved"] + ["approval.requested"] * 3
    assert told[0]["data"]["url"].startswith("https://console.example.org/approvals/")
