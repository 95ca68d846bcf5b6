"""The main job in a real Chromium: read, decide, and watch it happen without a reload."""

from __future__ import annotations

import re
from typing import Any

import pytest
from django.urls import reverse
from playwright.sync_api import Page, expect

from ledger.templatetags.values import FOLD_ABOVE
from tests.approvalcast import Case
from tests.stage import PASSWORD, Stage, a_stage

__all__ = ["a_stage"]
pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True)]

WIDTHS = (390, 768, 1440)


@pytest.fixture(autouse=True)
def _threads_may_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    # Playwright's loop runs in this thread; the engine's calls beside it are not asynchronous.
    monkeypatch.setenv("DJANGO_ALLOW_ASYNC_UNSAFE", "1")


@pytest.fixture
def seated(stage: Stage, live_server: Any, browser_page: Page) -> Page:
    """Olivia's browser, signed in through the form, at the inbox."""
    _ = stage.approver
    browser_page.goto(live_server.url + "/")
    browser_page.get_by_label("Username").fill("olivia")
    browser_page.get_by_label("Password").fill(PASSWORD)
    browser_page.get_by_role("button", name="Sign in").click()
    expect(browser_page.get_by_role("heading", name="Inbox")).to_be_visible()
    return browser_page


def test_a_refund_is_read_approved_and_watched_until_it_is_committed(stage, seated, live_server):
    saga, _ = stage.waiting_refund()
    seated.get_by_role("link", name=re.compile("refund-desk wants to")).click()
    expect(seated.locator(".args").get_by_text("Order 8841 was cancelled")).to_be_visible()
    seated.get_by_label("I understand that this cannot be undone").check()
    seated.get_by_role("button", name="Approve", exact=True).click()
    expect(seated.get_by_text("Approved by olivia.")).to_be_visible()
    seated.get_by_role("link", name="Watch the saga").click()
    seated.evaluate("window.stayed = true")
    step = seated.locator("#step-2")
    expect(step.get_by_text("queued", exact=True)).to_be_visible()
    stage.work()
    expect(step.get_by_text("committed", exact=True)).to_be_visible()
    assert seated.evaluate("window.stayed")
    assert seated.url == live_server.url + reverse("ledger:saga-detail", args=[saga])


def test_the_request_itself_tells_what_became_of_it_without_a_reload(stage, seated):
    """Every part of the page that time changes is of one moment: none still says `queued`."""
    stage.waiting_refund()
    seated.get_by_role("link", name=re.compile("refund-desk wants to")).click()
    seated.get_by_label("I understand that this cannot be undone").check()
    seated.get_by_role("button", name="Approve", exact=True).click()
    expect(seated.get_by_text("Approved by olivia.")).to_be_visible()
    seated.evaluate("window.stayed = true")
    here = seated.locator("#saga-now .here")
    expect(here.get_by_text("queued", exact=True)).to_be_visible()
    expect(seated.get_by_role("button", name="Take the yes back")).to_be_visible()
    stage.work()
    expect(here.get_by_text("committed", exact=True)).to_be_visible()
    expect(seated.locator("#facts").get_by_text("The yes lasts")).to_have_count(0)
    expect(seated.get_by_role("button", name="Take the yes back")).to_have_count(0)
    assert seated.evaluate("window.stayed")


def test_approving_what_cannot_be_undone_needs_the_second_press(stage, seated):
    _, step = stage.waiting_refund()
    seated.reload()
    seated.get_by_role("link", name=re.compile("refund-desk wants to")).click()
    seated.get_by_role("button", name="Approve", exact=True).click()
    assert stage.request(step).state == "pending"
    assert seated.evaluate("document.activeElement.name") == "understood"


def test_a_folded_argument_is_unfolded_and_must_be_ticked(stage, seated, live_server):
    """Case G1: Approve does nothing until the folded part was opened."""
    step = stage.refund(stage.saga(), note="ok " + "x" * FOLD_ABOVE + " && rm -rf /")
    request = stage.request(step)
    seated.goto(live_server.url + reverse("approvals:approval-detail", args=[request.pk]))
    seated.get_by_label("I understand that this cannot be undone").check()
    seated.get_by_role("button", name="Approve", exact=True).click()
    expect(seated.get_by_text("&& rm -rf /").first).to_be_visible()
    assert stage.request(step).state == "pending"
    seated.get_by_label("I have read all of it").check()
    seated.get_by_role("button", name="Approve", exact=True).click()
    expect(seated.get_by_text("Approved by olivia.")).to_be_visible()


def test_a_rejected_refund_undoes_the_saga_before_ones_eyes(stage, seated):
    stage.waiting_refund()
    seated.reload()
    seated.get_by_role("link", name=re.compile("refund-desk wants to")).click()
    seated.get_by_label("What should the agent know?").fill("Already shipped")
    seated.get_by_role("button", name="Reject").click()
    expect(seated.get_by_text("Rejected.", exact=True)).to_be_visible()
    seated.get_by_role("link", name="Watch the saga").click()
    expect(seated.get_by_text("charge is being undone")).to_be_visible()
    stage.work()
    expect(seated.get_by_text("Ended backwards, every effect was undone.")).to_be_visible()
    expect(seated.get_by_role("heading", name="The way back")).to_be_visible()


def test_a_new_request_appears_in_the_inbox_by_itself(stage, seated):
    expect(seated.get_by_text("Nothing is waiting")).to_be_visible()
    stage.waiting_refund()
    expect(seated.get_by_role("link", name=re.compile("refund-desk wants to"))).to_be_visible()


def test_a_poll_leaves_an_opened_step_open(stage, seated, live_server):
    saga, step = stage.waiting_refund()
    seated.goto(live_server.url + reverse("ledger:saga-detail", args=[saga]))
    seated.locator("#step-1 > summary").click()
    stage.decide(step)
    expect(seated.locator("#step-2").get_by_text("queued", exact=True)).to_be_visible()
    expect(seated.locator("#step-1")).to_have_attribute("open", "")


def test_a_poll_leaves_an_answer_that_is_being_written_alone(stage, seated, live_server):
    stage.unknown_refund()
    seated.goto(live_server.url + reverse("ledger:attention"))
    seated.locator("summary", has_text="It happened").click()
    seated.locator("textarea[name=reason]:visible").fill("I looked at the bank and")
    stage.unknown_refund("refund-8791")
    seated.wait_for_timeout(4_500)
    written = seated.locator("textarea:focus")
    expect(written).to_have_value("I looked at the bank and")


def test_at_the_deadline_the_buttons_are_dead_and_then_gone(stage, seated, live_server):
    """Case D1: by the server's clock, with no relay to write the end down."""
    saga = stage.saga()
    case = Case(stage.agent, saga, stage.refund(saga))
    case.ask_again(seconds=6.0)
    seated.goto(live_server.url + reverse("approvals:approval-detail", args=[case.request.pk]))
    approve = seated.get_by_role("button", name="Approve", exact=True)
    expect(approve).to_be_enabled()
    # The page alone: what the polls would bring is kept away for a while.
    seated.route("**/approvals/*/?seen=*", lambda route: route.fulfill(status=204))
    expect(approve).to_be_disabled()
    expect(seated.get_by_role("button", name="Reject")).to_be_disabled()
    seated.unroute("**/approvals/*/?seen=*")
    expect(approve).to_have_count(0)
    assert case.request.state == "pending"  # nobody has written it down, and it is so


def test_somebody_elses_decision_closes_the_box_while_one_reads(stage, seated):
    _, step = stage.waiting_refund()
    seated.reload()
    seated.get_by_role("link", name=re.compile("refund-desk wants to")).click()
    expect(seated.get_by_role("button", name="Approve", exact=True)).to_be_visible()
    stage.decide(step, "reject", reason="Already shipped")
    expect(seated.get_by_text("Rejected.", exact=True)).to_be_visible()
    expect(seated.get_by_role("button", name="Approve", exact=True)).to_have_count(0)


@pytest.mark.parametrize("width", WIDTHS)
def test_no_page_is_wider_than_its_window(stage, seated, live_server, width):
    saga, step = stage.waiting_refund()
    stage.unknown_refund()
    seated.set_viewport_size({"width": width, "height": 844})
    for path in (
        reverse("approvals:inbox"),
        reverse("approvals:approval-detail", args=[stage.request(step).pk]),
        reverse("ledger:saga-list"),
        reverse("ledger:saga-detail", args=[saga]),
        reverse("ledger:attention"),
        reverse("ledger:tools"),
        reverse("ledger:agents"),
        reverse("ledger:operations"),
        reverse("ledger:ledger"),
    ):
        seated.goto(live_server.url + path)
        seated.evaluate("document.querySelectorAll('details').forEach(d => { d.open = true })")
        assert seated.evaluate("document.documentElement.scrollWidth") <= width, path
