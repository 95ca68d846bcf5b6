"""The title over a request's arguments is true at any time: will run, was approved, proposed."""

from __future__ import annotations

import time
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse
from playwright.sync_api import Page, expect

from ledger.services import closing
from tests.approvalcast import Case
from tests.stage import PASSWORD, REFUND, Stage, a_stage, sign_in

__all__ = ["a_stage"]
pytestmark = pytest.mark.django_db(transaction=True)

WILL_RUN, APPROVED = "Exactly this will run", "Exactly this was approved"
PROPOSED = "This was proposed"


def title_of(stage: Stage, request: Any) -> str:
    client = Client()
    sign_in(client, stage.second)
    html = client.get(reverse("approvals:approval-detail", args=[request.pk])).content.decode()
    found = [name for name in (WILL_RUN, APPROVED, PROPOSED) if f">{name}</h2>" in html]
    assert len(found) == 1
    return found[0]


def rejected(stage: Stage, saga: Any, step: Any) -> None:
    stage.decide(step, "reject")


def change_asked_for(stage: Stage, saga: Any, step: Any) -> None:
    stage.decide(step, "request_change")


def superseded(stage: Stage, saga: Any, step: Any) -> None:
    stage.decide(step, "request_change")
    stage.propose(saga, "refund", "payments.refund", REFUND | {"amount": 1})


def withdrawn(stage: Stage, saga: Any, step: Any) -> None:
    closing.abort(saga, "no longer wanted", bearer=stage.agent)


@pytest.mark.parametrize("end", [rejected, change_asked_for, superseded, withdrawn])
def test_what_does_not_run_was_proposed(stage: Stage, end: Any) -> None:
    saga, step = stage.waiting_refund()
    request = stage.request(step)
    assert title_of(stage, request) == WILL_RUN
    end(stage, saga, step)
    assert title_of(stage, request) == PROPOSED


def test_what_nobody_answered_in_time_was_proposed(stage: Stage) -> None:
    """Its time is over, whether a relay has written that down or not."""
    saga, step = stage.waiting_refund()
    Case(stage.agent, saga, step).ask_again(seconds=0.001)
    time.sleep(0.01)
    assert title_of(stage, stage.request(step)) == PROPOSED


def test_a_yes_that_was_used_up_is_not_told_as_one_that_will_run(stage: Stage) -> None:
    _, step = stage.waiting_refund()
    stage.decide(step)
    assert title_of(stage, stage.request(step)) == WILL_RUN
    stage.work()
    assert title_of(stage, stage.request(step)) == APPROVED


@pytest.mark.browser
def test_the_title_goes_on_with_the_rest_of_the_page(
    stage: Stage, live_server: Any, browser_page: Page, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DJANGO_ALLOW_ASYNC_UNSAFE", "1")
    _, step = stage.waiting_refund()
    _ = stage.second
    address = reverse("approvals:approval-detail", args=[stage.request(step).pk])
    browser_page.goto(live_server.url + address)
    browser_page.get_by_label("Username").fill("ada")
    browser_page.get_by_label("Password").fill(PASSWORD)
    browser_page.get_by_role("button", name="Sign in").click()
    expect(browser_page.get_by_role("heading", name=WILL_RUN)).to_be_visible()
    browser_page.evaluate("window.stayed = true")
    stage.decide(step, "reject")
    expect(browser_page.get_by_role("heading", name=PROPOSED)).to_be_visible()
    expect(browser_page.get_by_role("heading", name=WILL_RUN)).to_have_count(0)
    assert browser_page.evaluate("window.stayed")
