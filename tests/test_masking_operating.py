"""Case G5 where operators work: forms, timelines, drills and traces show no secret of an agent."""

from __future__ import annotations

import html
import json
import re
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse

from ledger.errors import InvalidArgs
from ledger.models import Entry, Step
from ledger.services import tokens
from ledger.services.operating import retry
from tests.apicast import Caller
from tests.deploys import SCHEMA, Till, a_till, booking, step_of
from tests.shop import assert_verifies
from tests.stage import sign_in

__all__ = ["a_till"]
pytestmark = pytest.mark.django_db(transaction=True)

PIN, OTHER = "4711-of-the-till", "0815-of-the-till"
WITH_PIN: dict[str, Any] = SCHEMA | {
    "properties": SCHEMA["properties"]  # type: ignore[operator]
    | {"pin": {"type": "string", "writeOnly": True}}
}
MASKED = f"••• ({len(PIN)} characters)"


@pytest.fixture
def oskar(db: None) -> Any:
    return tokens.seat_operator("oskar", group="oncall", password="a long one 9!")


@pytest.fixture
def browser(oskar: Any) -> Client:
    client = Client()
    sign_in(client, oskar)
    return client


@pytest.fixture
def parked(till: Till) -> Step:
    """A step with a secret that waits for an operator, because its tool has changed."""
    till.release("1", schema=WITH_PIN)
    saga = till.open(booking("one", pin=PIN))
    till.release("2", schema=WITH_PIN)
    assert till.claim() == []
    return step_of(saga)


def prefilled(page: str) -> dict[str, Any]:
    """What the form to edit the arguments has in it."""
    (text,) = re.findall(r'name="args"[^>]*>(.*?)</textarea>', page, re.DOTALL)
    found: dict[str, Any] = json.loads(html.unescape(text))
    return found


def pages(step: Step) -> list[str]:
    return [reverse("ledger:attention"), reverse("ledger:saga-detail", args=[step.saga_id])]


def test_the_form_to_edit_shows_no_secret_and_changes_none_unseen(
    browser: Client, parked: Step, till: Till
) -> None:
    for address in pages(parked):
        page = browser.get(address).content.decode()
        assert PIN not in page
        assert prefilled(page) == {"pin": MASKED, "sum": 100}
    sent = {"args": json.dumps({"pin": MASKED, "sum": 250}), "reason": "a cent was missing"}
    answer = browser.post(reverse("ledger:retry", args=[parked.pk]), sent, follow=True)
    assert PIN not in answer.content.decode()
    till.work()
    done = Step.objects.get(pk=parked.pk)
    assert (done.state, json.loads(done.args_text)) == ("committed", {"pin": PIN, "sum": 250})
    told = json.loads(Entry.objects.get(saga_id=done.saga_id, kind="operator.edited").payload)
    assert told["args"] == {"pin": PIN, "sum": 250}
    for address in pages(done):
        assert PIN not in browser.get(address).content.decode()
    assert_verifies()


def test_a_secret_can_be_written_anew_and_a_mask_elsewhere_is_refused(
    parked: Step, till: Till
) -> None:
    with pytest.raises(InvalidArgs, match="still masked"):
        retry(
            parked.pk, reason="x", actor="person:ona", args={"pin": "••• (9 characters)", "sum": 1}
        )
    with pytest.raises(InvalidArgs, match="arguments that it has now"):
        retry(parked.pk, reason="x", actor="person:ona", args={"pin": MASKED, "sum": 100})
    retry(parked.pk, reason="new", actor="person:ona", args={"pin": OTHER, "sum": 100})
    assert json.loads(step_of(parked.saga_id).args_text) == {"pin": OTHER, "sum": 100}


def test_the_same_over_rest(oskar: Any, parked: Step) -> None:
    caller = Caller(tokens.issue_operator_token(oskar))
    sent = {"reason": "a cent was missing", "args": {"pin": MASKED, "sum": 250}}
    assert caller.post(f"steps/{parked.pk}/retry", sent).status_code == 200
    assert json.loads(step_of(parked.saga_id).args_text) == {"pin": PIN, "sum": 250}


def test_a_trace_has_a_digest_instead_of_a_secret(oskar: Any, parked: Step, till: Till) -> None:
    """In every event alike, so that what was shown and what was sent still compare."""
    retry(parked.pk, reason="more", actor="person:ona", args={"pin": PIN, "sum": 250})
    till.work()
    done = Step.objects.get(pk=parked.pk)
    caller = Caller(tokens.issue_operator_token(oskar))
    answer = caller.get(f"sagas/{done.saga_id}/trace.jsonl")
    text = b"".join(answer.streaming_content).decode()
    assert PIN not in text
    assert f'"args_digest":"{done.fingerprint}"' in text.replace(" ", "")
