"""A saga's own webhook, and what keeps an agent from calling the world through it."""

from __future__ import annotations

import io
import socket
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.test import Client

from ledger import webhosts
from ledger.models import Agent, Message, Notice, Saga
from ledger.models.fields import uuid7
from ledger.outcomes import Unknown
from ledger.services import closing, tokens
from ledger.services.opening import open_saga
from ledger.services.proposals import Opening
from ledger.services.recording import Finished, record
from tests.apicast import Caller
from tests.approvalcast import Case, agent, claim, tools
from tests.postcast import SECRET, Receiver, Write, make_due, post, webhook_channel

__all__ = ["tools"]


def opened(url: str, name: str = "billing") -> Case:
    """A saga whose agent wants to be told at `url`."""
    caller = agent(name)
    saga = open_saga(Opening("task", "Cancel order 7", webhook=url), bearer=caller).saga
    return Case(caller, saga, saga)


def secret_of(name: str) -> str:
    out = io.StringIO()
    call_command("webhook_secret", name, stdout=out)
    return out.getvalue().strip()


@pytest.mark.django_db(transaction=True)
@pytest.mark.usefixtures("tools")
class TestSagas:
    def test_the_end_is_told_once_and_signed_with_the_agents_key(
        self, receiver: Receiver, settings: Any
    ) -> None:
        settings.SAGA_WEBHOOK_HOSTS = ["127.0.0.1"]
        case = opened(f"{receiver.url}/hook?x=1")
        closing.complete(case.saga, bearer=case.agent)
        closing.complete(case.saga, bearer=case.agent)
        post()
        post()
        (told,) = receiver.verified(secret_of("billing"))
        assert receiver.got[0].path == "/hook?x=1"
        assert receiver.got[0].headers["host"] == f"127.0.0.1:{receiver.port}"
        assert told["type"] == "saga.completed"
        assert told["data"] == {
            "saga_id": str(case.saga),
            "task_id": "task",
            "name": "Cancel order 7",
            "agent": "billing",
            "state": "completed",
            "residue": [],
            "url": told["data"]["url"],
        }

    def test_each_agent_has_a_key_of_its_own(self) -> None:
        agent("billing")
        agent("shipping")
        assert secret_of("billing") != secret_of("shipping")
        assert secret_of("billing") == secret_of("billing")

    def test_going_back_is_told_at_its_end(self, receiver: Receiver, settings: Any) -> None:
        settings.SAGA_WEBHOOK_HOSTS = ["127.0.0.1"]
        case = opened(receiver.url)
        closing.abort(case.saga, "the customer called", bearer=case.agent)
        post()
        (told,) = receiver.verified(secret_of("billing"))
        assert (told["type"], told["data"]["residue"]) == ("saga.compensated", [])

    def test_a_redirect_is_not_followed(self, receiver: Receiver, settings: Any) -> None:
        settings.SAGA_WEBHOOK_HOSTS = ["127.0.0.1"]
        receiver.answer = lambda _request: (307, {"location": f"{receiver.url}/inside"})
        case = opened(f"{receiver.url}/hook")
        closing.complete(case.saga, bearer=case.agent)
        post()
        assert [one.path for one in receiver.got] == ["/hook"]
        assert "redirects are not followed" in Message.objects.get().last_error

    def test_a_host_that_is_no_longer_allowed_is_not_called(
        self, receiver: Receiver, settings: Any
    ) -> None:
        case = opened(receiver.url)
        closing.complete(case.saga, bearer=case.agent)
        post()
        assert receiver.got == []
        message = Message.objects.get()
        assert message.state == "undelivered"
        assert "SAGA_WEBHOOK_HOSTS" in message.last_error

    def test_a_name_that_leads_inside_is_not_called(
        self, receiver: Receiver, settings: Any
    ) -> None:
        """The name is allowed, what it leads to is not: `localhost` stands for any such name."""
        settings.SAGA_WEBHOOK_HOSTS = ["localhost"]
        case = opened(f"http://localhost:{receiver.port}/")
        closing.complete(case.saga, bearer=case.agent)
        post()
        assert receiver.got == []
        assert "no public address" in Message.objects.get().last_error
        settings.SAGA_WEBHOOK_HOSTS = ["localhost", "127.0.0.0/8", "::1/128"]
        assert webhosts.resolve(
            f"http://localhost:{receiver.port}/", webhosts.hosts(settings.SAGA_WEBHOOK_HOSTS)
        ) in {"127.0.0.1", "::1"}

    def test_one_agents_dead_receiver_holds_up_no_others(
        self, receiver: Receiver, settings: Any
    ) -> None:
        settings.SAGA_WEBHOOK_HOSTS = ["127.0.0.1"]
        with socket.socket() as silent:
            silent.bind(("127.0.0.1", 0))
            silent.listen()  # takes the connection, and never answers
            dead = opened(f"http://127.0.0.1:{silent.getsockname()[1]}/", "dead")
            closing.complete(dead.saga, bearer=dead.agent)
            alive = opened(receiver.url, "alive")
            closing.complete(alive.saga, bearer=alive.agent)
            post(within_s=25)
        assert len(receiver.verified(secret_of("alive"))) == 1
        assert Message.objects.get(channel="agent:dead").state == "waiting"
        assert Message.objects.get(channel="agent:alive").state == "delivered"

    def test_a_stuck_saga_is_told_to_people_on_call_and_to_its_webhook(
        self, receiver: Receiver, settings: Any, channels_file: Write
    ) -> None:
        settings.SAGA_WEBHOOK_HOSTS = ["127.0.0.1"]
        channels_file(
            webhook_channel("night", groups="oncall")
            + webhook_channel("finance", groups="finance"),
            HOOK_URL=receiver.url,
            HOOK_KEY=SECRET,
        )
        case = opened(f"{receiver.url}/agent")
        case.propose("note", "note.add", id="n1")
        (assignment,) = claim()
        record(uuid7(), [Finished(assignment, Unknown("the answer was cut off"))])
        assert Saga.objects.get(pk=case.saga).state == "stuck"
        post()
        assert sorted(one.path for one in receiver.got) == ["/", "/agent"]
        assert {one.json["type"] for one in receiver.got} == {"saga.stuck"}
        make_due()

    def test_without_a_webhook_an_end_leaves_no_notice(self) -> None:
        case = opened("")
        closing.complete(case.saga, bearer=case.agent)
        assert Notice.objects.count() == 0


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("allowed", "url", "is_taken"),
    [
        ([], "https://hooks.example.org/x", False),
        (["hooks.example.org"], "https://hooks.example.org/x", True),
        (["hooks.example.org"], "https://HOOKS.example.org./x", True),
        (["hooks.example.org"], "https://evil.example.org/x", False),
        (["hooks.example.org"], "https://hooks.example.org.evil.example/x", False),
        (["hooks.example.org"], "https://hooks.example.org@evil.example/x", False),
        (["*.example.org"], "https://a.b.example.org/x", True),
        (["*.example.org"], "https://example.org/x", False),
        (["*.example.org"], "https://127.0.0.1/x", False),
        (["10.0.0.0/8"], "http://10.1.2.3:8080/x", True),
        (["10.0.0.0/8"], "http://[::ffff:10.1.2.3]/x", True),
        (["10.0.0.0/8"], "http://169.254.169.254/latest/meta-data", False),
        (["10.0.0.0/8"], "http://2130706433/", False),
        (["10.0.0.0/8"], "http://0x7f000001/", False),
    ],
)
def test_the_api_takes_a_webhook_to_an_allowed_host_and_no_other(
    settings: Any, agent: Caller, allowed: list[str], url: str, is_taken: bool
) -> None:
    settings.SAGA_WEBHOOK_HOSTS = allowed
    answer = agent.post("sagas", {"task_id": "t", "name": "n", "webhook": url})
    assert answer.status_code == (201 if is_taken else 422)
    assert Saga.objects.count() == int(is_taken)
    if not is_taken:
        problem = answer.json()
        assert problem["type"].endswith("invalid-args")
        assert problem["errors"][0]["pointer"] == "/webhook"


def test_what_leads_inside_is_no_public_address() -> None:
    """Every address of a name counts, not only the first (RFC 6890 and its like)."""
    for address in (
        *("127.0.0.1", "10.0.0.1", "172.16.0.1", "192.168.0.1", "169.254.169.254", "100.64.0.1"),
        *("0.0.0.0", "224.0.0.1", "::1", "fe80::1", "fc00::1", "::ffff:127.0.0.1"),
        *("2002:7f00:1::", "ff02::1"),
    ):
        url = f"http://[{address}]/" if ":" in address else f"http://{address}/"
        with pytest.raises(webhosts.NotAllowed):
            webhosts.resolve(url, webhosts.hosts(["example.org"]))


@pytest.mark.parametrize("entry", ["https://example.org", "example.org:443", "10.0.0.1/8", "a b"])
def test_a_wrong_list_of_hosts_is_refused(entry: str) -> None:
    with pytest.raises(ValueError, match="no host name, address or network"):
        webhosts.hosts([entry])


@pytest.mark.django_db
def test_the_key_of_an_unknown_agent_is_refused() -> None:
    with pytest.raises(CommandError, match="no agent"):
        secret_of("nobody")


@pytest.mark.django_db(transaction=True)
@pytest.mark.usefixtures("tools")
def test_the_sagas_page_shows_what_its_webhook_was_told(receiver: Receiver, settings: Any) -> None:
    settings.SAGA_WEBHOOK_HOSTS = ["127.0.0.1"]
    case = opened(receiver.url)
    closing.complete(case.saga, bearer=case.agent)
    post()
    client = Client()
    client.force_login(tokens.seat_operator("oskar", group="oncall", password="a long password 9"))
    page = client.get(f"/sagas/{case.saga}/").content.decode()
    assert "agent:billing" in page
    assert "The saga is completed" in page
    assert Agent.objects.count() == 1
