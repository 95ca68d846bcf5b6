"""Who decides, in a real Chromium: the password again, many at once, broken glass, standing in."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.core.management import call_command
from django.urls import reverse
from playwright.sync_api import Page, expect

from approvals.models import Decision
from tests.policycast import under
from tests.stage import PASSWORD, Stage, a_stage

__all__ = ["a_stage"]
pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True)]

ALL = '[[rule]]\nname = "all"\ntool = "*"\nverdict = "ask"\n'
SignIn = Callable[[Any], Page]


@pytest.fixture
def sign_in(stage: Stage, live_server: Any, browser_page: Page) -> SignIn:
    """Come in through the form, as this person."""

    def come_in(person: Any) -> Page:
        browser_page.context.clear_cookies()
        browser_page.goto(live_server.url + "/")
        browser_page.get_by_label("Username").fill(person.get_username())
        browser_page.get_by_label("Password").fill(PASSWORD)
        browser_page.get_by_role("button", name="Sign in").click()
        expect(browser_page.get_by_role("heading", name="Inbox")).to_be_visible()
        return browser_page

    return come_in


def test_the_password_is_asked_for_again_in_the_box_where_one_decides(
    stage, sign_in, live_server, settings
):
    _, step = stage.waiting_refund()
    page = sign_in(stage.approver)
    settings.SAGA_STEP_UP_S = 1
    page.wait_for_timeout(1100)
    address = reverse("approvals:approval-detail", args=[stage.request(step).pk])
    page.goto(live_server.url + address)
    approve = page.locator("#approve")
    approve.get_by_label("I understand that this cannot be undone").check()
    approve.get_by_role("button", name="Approve", exact=True).click()
    assert page.evaluate("document.activeElement.name") == "password"
    assert stage.request(step).state == "pending"
    approve.get_by_label("Your password").fill(PASSWORD)
    approve.get_by_role("button", name="Approve", exact=True).click()
    expect(page.get_by_text("Approved by olivia.")).to_be_visible()


def test_many_are_ticked_listed_and_answered_and_what_came_later_is_not_touched(stage, sign_in):
    with under(ALL):
        steps = [stage.charge(stage.saga(task=f"c{n}")) for n in range(3)]
        refund = stage.refund(stage.saga(task="r"))
        page = sign_in(stage.approver)
        picks = page.get_by_role("checkbox")
        expect(picks).to_have_count(4)
        for index in range(4):
            picks.nth(index).check()
        page.get_by_role("heading", name="Inbox").click()  # nobody's ticking is interrupted
        late = stage.charge(stage.saga(task="late"))
        expect(page.get_by_role("checkbox")).to_have_count(5, timeout=15_000)  # the inbox is live
        expect(page.locator("input[name=item]:checked")).to_have_count(4)  # and ticks stay
        stage.decide(steps[2], "reject", by=stage.second)
        page.get_by_role("button", name="Approve…").click()
        expect(page.get_by_role("heading", name="Approve 2 requests")).to_be_visible()
        assert Decision.objects.count() == 1
        page.get_by_role("button", name="Approve 2").click()
        expect(page.get_by_role("status")).to_contain_text("2 applied")
        states = [stage.request(step).state for step in (*steps, refund, late)]
        assert states == ["approved", "approved", "rejected", "pending", "pending"]


def test_the_glass_is_broken_and_another_closes_the_review(stage, sign_in, live_server):
    _, step = stage.waiting_refund()
    oskar = stage.oncall
    call_command("break_glass", "oskar")
    page = sign_in(oskar)
    address = reverse("approvals:approval-detail", args=[stage.request(step).pk])
    page.goto(live_server.url + address)
    page.get_by_text("Break the glass").click()
    glass = page.locator("#glass")
    glass.get_by_label("Incident").fill("INC-2041")
    glass.get_by_label("Why it cannot wait").fill("Payouts are stuck and nobody answers.")
    glass.get_by_label("I understand").check()
    glass.get_by_role("button", name="Approve alone").click()
    expect(page.get_by_text("broke the glass for incident INC-2041")).to_be_visible()
    page.get_by_role("link", name="Open reviews").click()
    expect(page.get_by_text("You broke the glass")).to_be_visible()
    sign_in(stage.approver)
    page.get_by_role("link", name="Open reviews").click()
    page.get_by_label("What did you find?").fill("It was right; the runbook has it now.")
    page.get_by_role("button", name="Close the review").click()
    expect(page.get_by_text("No review is open")).to_be_visible()


def test_somebody_stands_in_and_both_names_are_shown(stage, sign_in):
    stage.waiting_refund()
    _ = stage.viewer
    page = sign_in(stage.approver)
    page.get_by_role("link", name="Out of office").click()
    page.get_by_label("Who").select_option("vera")
    page.get_by_label("To", exact=True).fill(
        (datetime.now(UTC) + timedelta(days=5)).strftime("%Y-%m-%dT%H:%M")
    )
    page.get_by_label("Reason").fill("Annual leave")
    page.get_by_role("button", name="Lend my right").click()
    expect(page.get_by_text("vera stands in for you")).to_be_visible()
    sign_in(stage.viewer)
    page.get_by_role("link", name=re.compile("refund-desk wants to")).click()
    expect(page.get_by_text("who is out of office")).to_be_visible()
    page.get_by_label("I understand that this cannot be undone").check()
    page.get_by_role("button", name="Approve", exact=True).click()
    expect(page.get_by_text("Approved by vera for olivia.")).to_be_visible()
    assert Decision.objects.get().stands_for_name == "olivia"
