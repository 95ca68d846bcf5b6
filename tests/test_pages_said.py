"""What targets said is told in words, once, and keys are cut at one length on every page."""

from __future__ import annotations

import re
from html import unescape
from typing import Any
from uuid import UUID

import pytest
from django.test import Client
from django.urls import reverse
from playwright.sync_api import Page, expect

from ledger.models import Attempt, Entry, Saga, Step
from ledger.outcomes import Failed, Unknown
from ledger.services.operating import retry
from ledger.services.telling import _saga_content
from tests.stage import PASSWORD, Stage, a_stage

__all__ = ["a_stage"]
pytestmark = pytest.mark.django_db(transaction=True)

DECLINED = '402 {"error": {"code": "card_declined", "message": "Your card was declined."}}'
FORBIDDEN = '403 {"error": {"message": "This key may not void charges.", "type": "key_error"}}'
IN_WORDS = "403 Forbidden, “This key may not void charges.”"
SHORT = 12


@pytest.fixture
def browser(stage: Stage) -> Client:
    client = Client()
    client.force_login(stage.oncall)
    return client


@pytest.fixture
def turned_back(stage: Stage) -> tuple[UUID, UUID]:
    """A saga that a target's refusal turned back, and whose undo was refused, too."""
    saga = stage.saga("Order 8900", "order-8900")
    step = stage.charge(saga)
    stage.work()
    stage.propose(saga, "cancel", "orders.cancel", {"order": "8900"})
    stage.answer(stage.claim(), Failed(DECLINED))
    stage.work(Failed(FORBIDDEN))
    return saga, step


def page(browser: Client, name: str, *args: Any) -> str:
    return unescape(browser.get(reverse(name, args=args)).content.decode())


def outside_folds(html: str) -> str:
    """The words of a page that nobody has to unfold anything for."""
    html = re.sub(r'<details class="fold".*?</details>', " ", html, flags=re.DOTALL)
    return " ".join(re.sub(r"<[^>]+>", " ", html).split())


def test_a_saga_says_in_words_why_it_turned_back(browser: Client, turned_back) -> None:
    html = page(browser, "ledger:saga-detail", turned_back[0])
    words = outside_folds(html)
    assert (
        "Turned back step cancel failed: 402 Payment Required, “Your card was declined.”" in words
    )
    assert "card_declined" not in words
    banner = html.split("Turned back", 1)[1].split("</div>", 1)[0]
    assert '<details class="fold" id="turned-back">' in banner
    assert '"code": "card_declined"' in banner


def test_every_place_that_tells_an_error_tells_it_in_words(browser: Client, turned_back) -> None:
    for html in (
        page(browser, "ledger:saga-detail", turned_back[0]),
        page(browser, "ledger:attention"),
    ):
        words = outside_folds(html)
        assert IN_WORDS in words
        assert "key_error" not in words
        assert '"type": "key_error"' in html


def test_the_message_about_a_saga_says_it_in_words(stage: Stage, turned_back) -> None:
    saga = Saga.objects.select_related("agent").get(pk=turned_back[0])
    notice = Entry.objects.filter(saga=saga).latest("seq")
    notice.kind = "saga.stuck"
    saga.residue = []
    facts = dict(_saga_content(notice, saga).facts)
    told = "step cancel failed: 402 Payment Required, “Your card was declined.”"
    assert facts["Turned back because"] == told


def test_the_message_about_a_saga_with_residue_does_not_say_that_it_was_undone(
    stage: Stage, turned_back
) -> None:
    saga = Saga.objects.select_related("agent").get(pk=turned_back[0])
    notice = Entry.objects.filter(saga=saga).latest("seq")
    notice.kind = "saga.compensated"
    saga.residue = ["charge"]
    assert "something is left or may be" in _saga_content(notice, saga).title
    saga.residue = []
    assert "A saga was undone" in _saga_content(notice, saga).title


def test_without_a_channel_nobody_is_promised_a_message(stage: Stage, browser: Client) -> None:
    _, step = stage.waiting_refund()
    html = page(browser, "approvals:approval-detail", stage.request(step).pk)
    assert "Nobody was told: no channel is set" in html
    assert "Nothing has been sent yet" not in html


def test_an_error_is_told_once_about_a_case(stage: Stage, browser: Client) -> None:
    """What is said under "Why you" is not said again under "It said", nor on the saga's page."""
    saga, _ = stage.stuck_undo()
    said = "403: this key may not void charges"
    html = page(browser, "ledger:attention")
    assert outside_folds(html).count(said) == 1
    row = page(browser, "ledger:saga-detail", saga).split('id="step-1"')[1].split("</li>")[0]
    asked, attempts = row.split("<h3>Attempts</h3>")
    assert asked.count(said) == 1
    assert "<h3>Error</h3>" not in asked
    assert attempts.count(said) == 1


def test_what_why_you_does_not_say_is_still_said(stage: Stage, browser: Client) -> None:
    """A doubt's question is one thing, what the last try came to another."""
    saga = stage.saga("Order 8776", "order-8776")
    stage.charge(saga)
    stage.answer(stage.claim(), Unknown("the line was cut"))
    words = outside_folds(page(browser, "ledger:attention"))
    assert "Nobody knows whether the effect of payments.charge happened" in words
    assert "It said the line was cut" in words


def digests(html: str) -> list[tuple[str, str]]:
    """(whole, shown) of every digest and key on a page."""
    return re.findall(r'class="digest[^"]*" title="([^"]+)">([^<]*)<', html)


def test_keys_and_digests_are_cut_at_one_length_on_every_page(
    stage: Stage, browser: Client, turned_back
) -> None:
    saga, step = turned_back
    refund = stage.refund(saga=stage.saga("Another", "another"))
    stage.decide(refund, "reject")
    undo = Attempt.objects.get(step=step, direction="compensate").idempotency_key
    forward = Step.objects.get(pk=step).idempotency_key
    assert undo == f"comp:{forward}"
    pages = [
        page(browser, "ledger:attention"),
        page(browser, "ledger:saga-detail", saga),
        page(browser, "ledger:ledger"),
        page(browser, "approvals:approval-detail", stage.request(refund).pk),
    ]
    for html in pages:
        for whole, shown in digests(html):
            prefix = whole[: whole.rfind(":") + 1]
            assert shown == prefix + whole.removeprefix(prefix)[:SHORT]
    found = [dict(digests(html)) for html in pages]
    assert found[0][undo] == f"comp:{forward[:SHORT]}"
    assert found[1][forward] == forward[:SHORT]
    assert found[1][undo] == f"comp:{forward[:SHORT]}"
    head = Saga.objects.get(pk=saga).head_hash
    assert found[1][head] == head[:SHORT]
    assert all(map(digests, (pages[1], pages[3])))


@pytest.mark.browser
def test_the_raw_json_is_a_press_away_and_stays_open_over_a_poll(
    stage: Stage, turned_back, live_server: Any, browser_page: Page, monkeypatch: Any
) -> None:
    monkeypatch.setenv("DJANGO_ALLOW_ASYNC_UNSAFE", "1")
    saga, step = turned_back
    _ = stage.oncall
    address = live_server.url + reverse("ledger:saga-detail", args=[saga])
    browser_page.goto(address)
    browser_page.get_by_label("Username").fill("oskar")
    browser_page.get_by_label("Password").fill(PASSWORD)
    browser_page.get_by_role("button", name="Sign in").click()
    banner = browser_page.locator(".notice", has_text="Turned back")
    expect(banner.get_by_text('"code": "card_declined"')).to_be_hidden()
    banner.locator("summary").click()
    expect(banner.get_by_text('"code": "card_declined"')).to_be_visible()
    browser_page.evaluate("window.stayed = true")
    retry(step, reason="The key was mended.", actor="person:oskar")
    stage.work()
    expect(browser_page.get_by_text("every effect was undone")).to_be_visible()
    expect(banner.get_by_text('"code": "card_declined"')).to_be_visible()
    assert browser_page.evaluate("window.stayed")
    for width in (390, 1440):
        browser_page.set_viewport_size({"width": width, "height": 844})
        assert browser_page.evaluate("document.documentElement.scrollWidth") <= width
