"""A step that a freeze holds says so: since when, by whom and why; and not that it is next."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse

from ledger.models import Freeze
from ledger.outcomes import Done
from ledger.services import closing, freezing
from tests.stage import Stage, a_stage

__all__ = ["a_stage"]
pytestmark = pytest.mark.django_db(transaction=True)

WHY = "The provider double-books"


@pytest.fixture
def browser(stage: Stage) -> Client:
    client = Client()
    client.force_login(stage.oncall)
    return client


def page(browser: Client, saga: UUID) -> str:
    return str(browser.get(reverse("ledger:saga-detail", args=[saga])).content.decode())


def freeze(scope: str, value: str, **more: Any) -> Freeze:
    return freezing.freeze(scope, value, reason=WHY, actor="person:oskar", **more)


def value_of(scope: str, stage: Stage, saga: UUID) -> str:
    return {"tool": "payments.charge", "agent": "refund-desk", "saga": str(saga)}.get(scope, "")


@pytest.mark.parametrize("scope", Freeze.SCOPES)
def test_a_queued_step_says_what_holds_it_until_that_is_lifted(
    stage: Stage, browser: Client, scope: str
) -> None:
    saga = stage.saga()
    stage.charge(saga)
    assert "is next in line" in page(browser, saga)
    found = freeze(scope, value_of(scope, stage, saga))
    html = page(browser, saga)
    assert stage.claim() == []
    for said in ("held by a freeze", "Held by a freeze", WHY, "by <b>oskar</b>"):
        assert said in html
    assert f'href="{reverse("ledger:operations")}">Operations</a></p>' in html
    for untrue in ("next in line", "next try", "Ready to run"):
        assert untrue not in html
    freezing.lift(found.pk, actor="person:oskar")
    html = page(browser, saga)
    assert "held by a freeze" not in html
    assert "Ready to run" in html


def test_an_undo_is_held_too(stage: Stage, browser: Client) -> None:
    saga = stage.saga()
    stage.charge(saga)
    stage.work(Done({"id": "ch_1"}))
    freeze("tool", "payments.charge")
    closing.abort(saga, "no longer wanted", bearer=stage.agent)
    html = page(browser, saga)
    assert "held by a freeze" in html
    assert "is being undone" not in html


def test_the_request_says_what_holds_what_was_let_through(stage: Stage, browser: Client) -> None:
    saga = stage.saga()
    step = stage.refund(saga)
    stage.decide(step)
    address = reverse("approvals:approval-detail", args=[stage.request(step).pk])
    assert "Now queued: Ready to run" in browser.get(address).content.decode()
    freeze("agent", "refund-desk")
    html = browser.get(address).content.decode()
    assert f"Now queued: a freeze by oskar holds it until that is lifted: {WHY}" in html
    assert "Ready to run, or" not in html.split('id="saga-now"')[0]


def test_other_freezes_hold_nothing_here(stage: Stage, browser: Client) -> None:
    saga = stage.saga()
    stage.charge(saga)
    freeze("tool", "mail.send")
    gone = freeze("all", "", expires_at=datetime.now(UTC) + timedelta(hours=1))
    Freeze.objects.filter(pk=gone.pk).update(expires_at=datetime.now(UTC) - timedelta(seconds=1))
    html = page(browser, saga)
    assert "held by a freeze" not in html
    assert "is next in line" in html


def test_a_poll_tells_of_a_freeze_that_no_entry_of_the_saga_tells(
    stage: Stage, browser: Client
) -> None:
    saga = stage.saga()
    stage.charge(saga)
    address = reverse("ledger:saga-detail", args=[saga])

    def poll(seen: str) -> Any:
        return browser.get(address, {"seen": seen}, headers={"HX-Request": "true"})

    before = browser.get(address).context["mark"]
    assert poll(before).status_code == 204
    freeze("tool", "payments.charge")
    answer = poll(before)
    assert "held by a freeze" in answer.content.decode()
    assert poll(answer.context["mark"]).status_code == 204


def test_more_steps_and_freezes_ask_no_more_of_the_database(stage: Stage, browser: Client) -> None:
    saga = stage.saga()
    stage.charge(saga)

    def queries() -> int:
        with CaptureQueriesContext(
            connection,
        ) as found:
            page(browser, saga)
        return len(found)

    freeze("all", "")
    few = queries()
    for number in range(5):
        stage.charge(saga, f"more-{number}")
        freeze("tool", "payments.charge")
    assert queries() == few
