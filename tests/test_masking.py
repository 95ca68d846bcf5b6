"""G5: one function in front of every sink; digests are over what really runs."""

from __future__ import annotations

import io
import logging
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from django.conf import settings as django_settings
from django.test import Client
from django.utils.module_loading import import_string

from approvals.services import deciding
from ledger import keys, masking
from ledger.masking import redact
from ledger.models import Message
from ledger.services import tokens
from ledger.services.opening import open_saga
from ledger.services.proposals import Opening, Proposal
from ledger.services.proposing import propose
from tests.approvalcast import Case, agent, claim, person
from tests.postcast import SECRET, Mailbox, Receiver, Write, post, webhook_channel
from tests.registered import registered

CARD = "4242-4242-4242-4242"
WORD = "hunter2-hunter2"
ENVIRONMENT = "Bearer sk_live_of_the_environment"
SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "card": {"type": "string", "writeOnly": True},
        "pin": {"type": "string", "format": "password"},
        "secret": {"type": "string", "writeOnly": False},
        "login": {"$ref": "#/$defs/login"},
        "many": {"type": "array", "items": {"$ref": "#/$defs/login"}},
        "first": {"type": "array", "prefixItems": [{"$ref": "#/$defs/login"}, {}]},
        "either": {"anyOf": [{"type": "null"}, {"$ref": "#/$defs/login"}]},
        "deep": {"$ref": "#/$defs/deep"},
    },
    "additionalProperties": {"writeOnly": True},
    "$defs": {
        "login": {"type": "object", "properties": {"word": {"writeOnly": True}}},
        "deep": {
            "type": "object",
            "properties": {"inner": {"$ref": "#/$defs/deep"}, "word": {"writeOnly": True}},
        },
    },
}


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ({"card": CARD}, {"card": "••• (19 characters)"}),
        ({"pin": ""}, {"pin": ""}),
        ({"pin": None}, {"pin": None}),
        ({"pin": 1234}, {"pin": "••• (4 characters)"}),
        ({"card": {"number": "1"}}, {"card": "••• (15 characters)"}),
        ({"secret": "said to be none"}, {"secret": "said to be none"}),
        (
            {"login": {"word": "x", "name": "ada"}},
            {"login": {"word": "••• (1 characters)", "name": "ada"}},
        ),
        ({"many": [{"word": "x"}]}, {"many": [{"word": "••• (1 characters)"}]}),
        (
            {"first": [{"word": "x"}, {"word": "y"}]},
            {"first": [{"word": "••• (1 characters)"}, {"word": "y"}]},
        ),
        ({"either": {"word": "x"}}, {"either": {"word": "••• (1 characters)"}}),
        (
            {"deep": {"inner": {"inner": {"word": "x"}}}},
            {"deep": {"inner": {"inner": {"word": "••• (1 characters)"}}}},
        ),
        ({"undeclared": "x"}, {"undeclared": "••• (1 characters)"}),
    ],
)
def test_the_schema_says_what_is_secret(value: Any, shown: Any) -> None:
    assert redact(value, SCHEMA) == shown


@pytest.mark.parametrize("name", ["password", "Client_Secret", "api-key", "APIKey", "access_token"])
def test_a_telling_name_is_enough(name: str) -> None:
    assert redact({"a": [{name: "x"}]}) == {"a": [{name: "••• (1 characters)"}]}


@pytest.mark.parametrize("name", ["token", "key", "secretary", "password_changed_at"])
def test_a_name_that_may_mean_something_else_is_not(name: str) -> None:
    assert redact({name: "tok_visa"}) == {name: "tok_visa"}


def test_what_is_given_is_never_changed() -> None:
    given = {"password": "x", "a": [{"secret": "y"}]}
    redact(given)
    assert given == {"password": "x", "a": [{"secret": "y"}]}


def test_what_the_process_holds_is_masked_wherever_it_appears() -> None:
    masking.know("Bearer of-a-known-secret")
    assert redact({"of-a-known-secret": ["x of-a-known-secret y"]}) == {"•••": ["x ••• y"]}
    masking.know("a b")  # too short to be looked for in everything
    assert redact("a b") == "a b"


TOOL = """
[tools."card.charge"]
version = "1"
tier = "pivot"
blast_radius = "high"
[tools."card.charge".args]
type = "object"
[tools."card.charge".args.properties]
id = { type = "string" }
card = { type = "string", writeOnly = true }
login = { type = "object", properties = { password = { type = "string" } } }
[tools."card.charge".execute]
method = "POST"
url = "http://127.0.0.1:1/do"
headers = { Authorization = "env:CARD_AUTH" }
"""


@pytest.fixture
def case(
    transactional_db: None, settings: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Case]:
    """A request with three secrets in its args: declared, by its name, the console's own."""
    monkeypatch.setenv("CARD_AUTH", ENVIRONMENT)
    with registered(settings, tmp_path, TOOL):
        caller = agent("charger")
        saga = open_saga(Opening("task", "Charge"), bearer=caller).saga
        args = {"id": f"echo {ENVIRONMENT}", "card": CARD, "login": {"password": WORD}}
        step = propose(saga, Proposal("charge", "card.charge", args), bearer=caller).step
        yield Case(caller, saga, step)


def assert_masked(text: str) -> None:
    """None of the secrets, in whatever spelling JSON gives them, and all else."""
    for secret in (CARD, WORD, "sk_live_of_the_environment"):
        assert secret not in text
    assert "echo" in text


def shown_by(client: Client, *paths: str) -> str:
    found = []
    for path in paths:
        answer = client.get(path)
        assert answer.status_code == 200, path
        found.append(answer.content.decode())
    return "\n".join(found)


class TestSinks:
    def test_pages(self, case: Case) -> None:
        """Case G5, on pages; the other sinks follow."""
        client = Client()
        client.force_login(tokens.seat_operator("ana", group="approvers", password="a long one 9!"))
        saga: UUID = case.saga
        text = shown_by(client, "/", f"/approvals/{case.request.pk}/", f"/sagas/{saga}/")
        assert_masked(text)
        assert "••• (19 characters)" in text
        assert case.digest[:8] in text

    def test_pages_after_it_ran(self, case: Case) -> None:
        deciding.approve(person("ana", "approvers"), case.request.pk, args_digest=case.digest)
        assert len(claim()) == 1  # its args are in the entry of the attempt
        client = Client()
        client.force_login(tokens.seat_operator("oskar", group="oncall", password="a long one 9!"))
        assert_masked(shown_by(client, f"/sagas/{case.saga}/"))

    def test_the_api_of_people(self, case: Case) -> None:
        user = tokens.seat_operator("ana", group="approvers", password="a long one 9!")
        raw = tokens.issue_operator_token(user)
        client = Client(headers={"authorization": f"Bearer {raw}"})
        text = shown_by(client, "/api/v1/approvals", f"/api/v1/approvals/{case.request.pk}")
        assert_masked(text)

    def test_the_digest_is_over_what_runs(self, case: Case) -> None:
        whole = {"id": f"echo {ENVIRONMENT}", "card": CARD, "login": {"password": WORD}}
        assert case.digest == keys.fingerprint(keys.canonical(whole))
        deciding.approve(person("ana", "approvers"), case.request.pk, args_digest=case.digest)
        (assignment,) = claim()
        assert assignment.call.args == whole

    def test_mail(self, case: Case, mailbox: Mailbox, channels_file: Write) -> None:
        """Case G5, in a mail."""
        channels_file(
            '[channel.desk]\nform = "mail"\ngroups = ["approvers"]\nto = ["desk@example.org"]\n'
        )
        post()
        (mail,) = mailbox.mails
        assert_masked(mail["Subject"] + mail.get_content())
        assert "••• (19 characters)" in mail.get_content()

    @pytest.mark.parametrize("form", ["webhook", "slack", "teams"])
    def test_posts(self, case: Case, receiver: Receiver, channels_file: Write, form: str) -> None:
        path = "/services/T000/verysecretpath"
        channels_file(
            webhook_channel("out", form=form), HOOK_URL=receiver.url + path, HOOK_KEY=SECRET
        )
        receiver.answer = lambda _request: (500, {})
        post()
        (got,) = receiver.got
        assert_masked(got.body)
        assert case.digest[:12] in got.body
        # What is kept, and so what pages show: neither the arguments nor the way there.
        kept = Message.objects.get()
        assert_masked(str(kept.content))
        assert "verysecretpath" not in f"{kept.recipients} {kept.last_error} {kept.content}"

    def test_a_reason_that_quotes_a_secret_of_the_console(
        self, case: Case, receiver: Receiver, channels_file: Write
    ) -> None:
        channels_file(webhook_channel("out"), HOOK_URL=receiver.url, HOOK_KEY=SECRET)
        why = f"why does it send {ENVIRONMENT}, echo?"
        deciding.reject(
            person("ana", "approvers"), case.request.pk, args_digest=case.digest, reason=why
        )
        post()
        assert_masked("".join(one.body for one in receiver.got))

    def test_the_log(self, case: Case) -> None:
        assert django_settings.LOGGING["formatters"]["line"]["()"] == "ledger.masking.Formatter"
        stream = io.StringIO()
        handler = logging.StreamHandler(stream)
        handler.setFormatter(import_string("ledger.masking.Formatter")("{message}", style="{"))
        log = logging.getLogger("tests.masking")
        log.addHandler(handler)
        try:
            raise ValueError(f"echo {ENVIRONMENT}")
        except ValueError:
            log.exception("it said %s", ENVIRONMENT)
        finally:
            log.removeHandler(handler)
        assert_masked(stream.getvalue())
        assert len(re.findall("•••", stream.getvalue())) >= 2
        assert case.digest
