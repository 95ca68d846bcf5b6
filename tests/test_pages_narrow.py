"""On a phone the place where one is can be seen, and only what is urgent is red."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
from django.urls import reverse
from playwright.sync_api import Browser, Page, Route, expect

from ledger.services import shifts
from tests.stage import PASSWORD, Stage, a_stage

__all__ = ["a_stage"]
pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True)]

PLACES = ("ledger:operations", "ledger:ledger", "ledger:agents", "approvals:inbox")
NARROW = {"width": 390, "height": 844}


@pytest.fixture(autouse=True)
def _threads_may_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DJANGO_ALLOW_ASYNC_UNSAFE", "1")


@pytest.fixture(params=["with JavaScript", "without JavaScript"])
def page(request: Any, stage: Stage, chromium: Browser, live_server: Any) -> Iterator[Page]:
    """Olivia's phone, signed in."""
    _ = stage.approver
    context = chromium.new_context(
        viewport=NARROW,
        base_url=live_server.url,
        java_script_enabled=request.param == "with JavaScript",
    )
    page = context.new_page()
    sign_in(page)
    yield page
    context.close()


def sign_in(page: Page) -> None:
    page.goto("/")
    page.get_by_label("Username").fill("olivia")
    page.get_by_label("Password").fill(PASSWORD)
    page.get_by_role("button", name="Sign in").click()
    expect(page.get_by_role("heading", name="Inbox")).to_be_visible()


def test_a_browser_that_must_be_told_shows_it_too(
    stage: Stage, chromium: Browser, live_server: Any
) -> None:
    """Without `scroll-initial-target`, as other browsers are, the script moves the line."""
    _ = stage.approver
    context = chromium.new_context(viewport=NARROW, base_url=live_server.url)
    page = context.new_page()
    page.add_init_script("CSS.supports = () => false")
    page.route("**/console*.css", _as_of_an_older_browser)
    sign_in(page)
    page.goto(reverse("ledger:operations"))
    expect(page.locator(".nav a[aria-current]")).to_be_in_viewport(ratio=1)
    context.close()


def _as_of_an_older_browser(route: Route) -> None:
    answer = route.fetch()
    route.fulfill(response=answer, body=answer.text().replace("scroll-initial-target", "x-none"))


@pytest.mark.parametrize("place", PLACES)
def test_the_place_where_one_is_is_on_the_screen(page: Page, place: str) -> None:
    page.goto(reverse(place))
    here = page.locator(".nav a[aria-current]")
    expect(here).to_be_in_viewport(ratio=1)
    assert page.locator("html").bounding_box()["y"] == 0


def test_a_link_into_a_page_is_not_scrolled_away_by_it(page: Page, stage: Stage) -> None:
    saga, _ = stage.waiting_refund()
    page.goto(reverse("ledger:saga-detail", args=[saga]) + "#entries")
    expect(page.get_by_role("heading", name="Ledger entries")).to_be_in_viewport()


def test_a_lease_is_red_only_once_it_has_run_out(
    stage: Stage, chromium: Browser, live_server: Any, settings: Any
) -> None:
    settings.SAGA_SHIFT_LEASE_S = 60
    _ = stage.approver
    shift = shifts.ring_row()
    shifts.begin(shift, "worker-1", 4)
    context = chromium.new_context(viewport=NARROW, base_url=live_server.url)
    page = context.new_page()
    sign_in(page)
    page.goto(reverse("ledger:operations"))
    lease = page.locator("time[data-show=lease]")
    expect(lease).to_have_text(re.compile(r"^(1 min|\d\d s) left$"))
    page.wait_for_timeout(1_200)  # the clock has ticked
    expect(lease).not_to_have_class("urgent")
    page.route("**/operations/**", lambda route: route.abort())  # nobody brings a newer one
    lease.evaluate("one => { one.dateTime = new Date(Date.now() - 5000).toISOString() }")
    expect(lease).to_have_class("urgent")
    expect(lease).to_have_text(re.compile(r"^ran out \d+ s ago$"))
    context.close()


def test_what_was_said_of_an_attempt_is_on_the_screen(page: Page, stage: Stage) -> None:
    """On call, on a phone: neither the answer of a target nor who wrote an entry is off it."""
    saga, _ = stage.stuck_undo()
    page.goto(reverse("ledger:saga-detail", args=[saga]))
    for table in page.locator(".step-body table.stack:visible").all():
        wide, shown = table.evaluate("it => [it.scrollWidth, it.parentElement.clientWidth]")
        assert 0 < wide <= shown
    expect(page.locator(".step-body").get_by_text("took").first).to_be_visible()
