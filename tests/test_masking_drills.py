"""Case G5 where tools are drilled: neither page nor command shows a secret, whoever says it.

The target is real and says back what it was sent; what it got is read from the target itself.
"""

from __future__ import annotations

import io
import json
import re
import threading
from collections.abc import Iterator
from html import unescape
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.db import connection
from django.test import Client
from django.urls import reverse

from ledger.masking import secrets_in
from ledger.models import Drill
from ledger.services import shifts, tokens
from ledger.shift import ShiftLoop
from tests.drillcast import Yard, yard
from tests.shop import AUTH
from tests.stage import PASSWORD

__all__ = ["yard"]

PIN, CARD = 'pin "4711" of the drill', "5105-1051-0510-5100"
# What must be nowhere: the fields that the schema calls secret, the keys of both worlds.
SECRETS = (PIN, json.dumps(PIN)[1:-1], CARD, AUTH, AUTH.split()[1], "sk_live_never")
KEEPER = f"""
[tools."vault.open"]
title = "Open a customer's vault"
version = "1"
tier = "compensatable"
blast_radius = "low"
timeout_s = 5
settle_s = 0.5
[tools."vault.open".args]
type = "object"
required = ["email"]
properties.email.type = "string"
properties.pin = {{ type = "string", writeOnly = true }}
properties.card.type = "object"
properties.card.properties.number = {{ type = "string", format = "password" }}
[tools."vault.open".execute]
method = "POST"
url = "PRODUCTION_URL/v1/customers"
headers = {{ Authorization = "env:CRM_AUTH" }}
[tools."vault.open".execute.form]
email = "{{args.email}}"
description = "{{args.card.number}}"
"metadata[note]" = "{{args.pin}}"
"metadata[saga_key]" = "{{idempotency_key}}"
[tools."vault.open".probe]
method = "GET"
url = "PRODUCTION_URL/v1/customers?limit=10000"
headers = {{ Authorization = "env:CRM_AUTH" }}
match = "data[?metadata.saga_key == {{idempotency_key}}] | [0]"
[tools."vault.open".compensate]
method = "DELETE"
url = "PRODUCTION_URL/v1/customers/{{result.id}}"
headers = {{ Authorization = "env:CRM_AUTH" }}
[tools."vault.open".drill]
base_url = "SANDBOX_URL"
args = {{ email = "{{drill}}@example.com", pin = '{PIN}', card = {{ number = "{CARD}" }} }}
environment = {{ CRM_AUTH = "env:CRM_SANDBOX_AUTH" }}
"""
# The undo asks for a customer who has the card's number as a name: the refusal says it back.
REFUSED = ("{result.id}", "{args.card.number}")
TOOL = "vault.open"


def keep(yard: Yard, *changes: tuple[str, str]) -> None:
    """Load the tool with secrets beside the others, with changes of its own."""
    text = KEEPER
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    for name, url in (("PRODUCTION_URL", yard.production.url), ("SANDBOX_URL", yard.sandbox)):
        text = text.replace(name, url)
    first = '[tools."crm.homeless"]\n'
    yard.write((first, text + first))


@pytest.fixture
def worker() -> Iterator[threading.Event]:
    """Shifts beside a command that waits, as a worker's process has them."""
    done = threading.Event()

    def life() -> None:
        while not done.is_set():
            ShiftLoop(shifts.ring_row()).run()
        connection.close()

    thread = threading.Thread(target=life)
    thread.start()
    yield done
    done.set()
    thread.join(30)


@pytest.fixture
def browser(yard: Yard) -> Client:
    client = Client()
    client.force_login(tokens.seat_operator("oskar", group="oncall", password=PASSWORD))
    return client


def shown(browser: Client) -> list[str]:
    """The pages that tell of a drill, as a browser reads them."""
    pages = [reverse("ledger:tool", args=[TOOL]), reverse("ledger:tools")]
    return [unescape(browser.get(page).content.decode()) for page in pages]


def command(*words: str) -> str:
    out, err = io.StringIO(), io.StringIO()
    try:
        call_command("drill", *words, stdout=out, stderr=err)
    except SystemExit as ended:
        out.write(f"exit {ended.code}")
    except CommandError as refused:
        err.write(str(refused))
    return out.getvalue() + err.getvalue()


def assert_tells_no_secret(*texts: str) -> None:
    for text in texts:
        assert [one for one in SECRETS if one in text] == []


def test_a_drill_that_works_shows_no_secret_though_the_target_says_them_back(
    yard: Yard, browser: Client, worker: threading.Event
) -> None:
    keep(yard)
    said = command(TOOL)
    assert f"{TOOL}: worked." in said
    pages = shown(browser)
    for text in (said, pages[0]):
        assert '"note":"•••"' in text
    assert_tells_no_secret(said, *pages)
    masked = f"••• ({len(PIN)} characters)"
    assert pages[0].count(masked) == 2  # this drill's arguments, and the example


def test_a_drill_that_fails_shows_no_secret_and_has_sent_them(
    yard: Yard, browser: Client, worker: threading.Event
) -> None:
    keep(yard, REFUSED)
    said = command(TOOL)
    args = json.loads(Drill.objects.get().args_text)
    got = next(one for one in yard.stored() if one["email"] == args["email"])
    assert (got["metadata"]["note"], got["description"]) == (PIN, CARD)
    assert re.search(r"undo +failed", said)
    assert "exit 1" in said
    assert_tells_no_secret(said, *shown(browser))
    assert "404" in said


def test_args_that_are_given_are_masked_as_the_declared_ones(
    yard: Yard, browser: Client, worker: threading.Event
) -> None:
    keep(yard)
    given = {"email": "given@example.com", "pin": PIN + "!", "card": {"number": CARD}}
    assert_tells_no_secret(command(TOOL, "--args", json.dumps(given)), *shown(browser))
    refused = command(TOOL, "--args", json.dumps(given | {"email": 7}))
    assert "/email: 7 is not of type" in refused
    assert_tells_no_secret(refused, *shown(browser))


def test_what_is_masked_in_an_answer_is_what_the_schema_calls_secret() -> None:
    schema: Any = {
        "properties": {
            "pin": {"type": "string", "writeOnly": True},
            "code": {"type": "integer", "format": "password"},
            "password": {"type": "string"},
            "lines": {"items": {"properties": {"key": {"writeOnly": True}}}},
        }
    }
    args = {
        "pin": 'a "b" c',
        "code": 471_100,
        "password": "hunter2!",
        "email": "ada@example.com",
        "lines": [{"key": {"inner": "deep one"}}, {"key": "abc"}],
    }
    assert secrets_in(args, schema) == {'a "b" c', 'a \\"b\\" c', "471100", "hunter2!", "deep one"}
