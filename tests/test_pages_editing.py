"""Editing and approving on the page: without JavaScript, and in a real Chromium."""

from __future__ import annotations

import json
import os
import re
from html import unescape
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse
from playwright.sync_api import Page, expect

from approvals.models import Approval, Decision
from ledger.models import Entry, Step
from ledger.services import tokens
from ledger.tools.installed import registry
from tests.apicast import Caller
from tests.stage import PASSWORD, TOOLS, Stage, a_stage, sign_in

__all__ = ["a_stage"]

BATCH = """
[tools."payouts.batch"]
title = "Pay a batch out"
version = "1"
tier = "pivot"
blast_radius = "high"
effect_key = "batch:{args.batch}"
[tools."payouts.batch".args]
type = "object"
required = ["batch", "limit", "lines"]
[tools."payouts.batch".args.properties]
batch = { type = "string", description = "names the effect" }
limit = { type = "integer", minimum = 1, description = "in cents" }
rate = { type = "number" }
dry_run = { type = "boolean" }
memo = { type = ["string", "null"] }
currency = { enum = ["eur", "usd", "chf"] }
trace = { type = "object", readOnly = true }
[tools."payouts.batch".args.properties.lines]
type = "array"
[tools."payouts.batch".args.properties.lines.items]
type = "object"
required = ["to", "cents"]
properties.to.type = "string"
properties.cents = { type = "integer", minimum = 1 }
[tools."payouts.batch".execute]
method = "POST"
url = "https://payments.example/v1/batches"
"""
ARGS: dict[str, Any] = {
    "batch": "2026-11-29",
    "limit": 9_007_199_254_740_991,
    "rate": 1.25,
    "dry_run": False,
    "memo": None,
    "currency": "eur",
    "trace": {"source": ["ledger", {"row": 7, "ok": True, "was": None}]},
    "lines": [{"to": "acct_1", "cents": 120_000}, {"to": "acct_2", "cents": 5}],
}


@pytest.fixture
def batch(stage: Stage, settings: Any) -> Step:
    """A batch that waits for an approver."""
    Path(settings.SAGA_TOOLS).write_text(TOOLS + BATCH, encoding="utf-8")
    registry.cache_clear()
    step = stage.propose(stage.saga(), "pay", "payouts.batch", ARGS, "Friday's payouts.")
    return Step.objects.get(pk=step)


@pytest.fixture
def late_batch(stage: Stage, batch: Step) -> Step:
    """The same past the saga's pivot, where a no turns nothing back."""
    stage.decide(batch.pk)
    stage.work()
    later = ARGS | {"batch": "2026-11-30"}
    step = stage.propose(batch.saga_id, "pay-later", "payouts.batch", later)
    return Step.objects.get(pk=step)


@pytest.fixture
def browser(stage: Stage) -> Client:
    client = Client()
    sign_in(client, stage.approver)
    return client


class Fields(HTMLParser):
    """What a browser without JavaScript would send of a page's forms, pressed buttons aside."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.found: dict[str, list[str]] = {}
        self._name = ""
        self._text: list[str] | None = None
        self.feed(html[html.index("<main") :])

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        told = {name: value or "" for name, value in attrs}
        if tag == "input" and "name" in told and told.get("type") != "checkbox":
            self._keep(told["name"], told.get("value", ""))
        elif tag in ("textarea", "select"):
            self._name, self._text = told.get("name", ""), [] if tag == "textarea" else None
        elif tag == "option" and "selected" in told:
            self._keep(self._name, told.get("value", ""))

    def handle_data(self, data: str) -> None:
        if self._text is not None:
            self._text.append(data)

    def handle_endtag(self, tag: str) -> None:
        if tag == "textarea" and self._text is not None:
            text = "".join(self._text).removeprefix("\n")
            self._keep(self._name, text.replace("\n", "\r\n"))
            self._text = None

    def _keep(self, name: str, value: str) -> None:
        self.found.setdefault(name, []).append(value)


def edit_url(stage: Stage, step: Step) -> str:
    return reverse("approvals:edit", args=[stage.request(step.pk).pk])


def press(browser: Client, url: str, html: str, do: str, **changed: str) -> Any:
    sent: dict[str, Any] = Fields(html).found | {"do": do} | changed
    return browser.post(url, sent)


def test_a_whole_edit_without_javascript(stage, browser, batch):
    """Cases A12 and A13: every other part arrives as it was, and only what was changed differs."""
    url = edit_url(stage, batch)
    html = browser.get(url).content.decode()
    grown = press(browser, url, html, "add:/lines", **{"v:/limit": "130000"})
    html = grown.content.decode()
    assert 'name="v:/lines/2/to"' in html
    assert 'value="130000"' in html
    changes = {"v:/lines/2/to": "acct_3", "v:/lines/2/cents": "9", "v:/memo": ""}
    review = press(browser, url, html, "review", **changes)
    assert review.status_code == 200, review.content.decode()
    html = review.content.decode()
    assert "Exactly this will run" in html
    old = stage.request(batch.pk)
    assert f'value="{old.args_digest}"' in html
    assert Approval.objects.count() == 1
    done = press(browser, url, html, "approve", understood="yes", reason="Less.")
    new = stage.request(batch.pk)
    assert done.status_code == 302
    assert done.headers["Location"] == reverse("approvals:approval-detail", args=[new.pk])
    lines = [*ARGS["lines"], {"to": "acct_3", "cents": 9}]
    assert json.loads(new.args_text) == ARGS | {"limit": 130_000, "lines": lines}
    assert new.state == "approved"
    told = browser.get(done.headers["Location"]).content.decode()
    assert "Edited by olivia" in told
    assert "9007199254740991" in re.sub(r"<[^>]+>", "", told)
    (ran,) = stage.claim()
    assert dict(ran.call.args) == json.loads(new.args_text)


def test_a_second_press_of_approve_is_the_same_decision(stage, browser, batch):
    """Case B7: the real form, sent twice."""
    url = edit_url(stage, batch)
    html = browser.get(url).content.decode()
    html = press(browser, url, html, "review", **{"v:/limit": "7"}).content.decode()
    first = press(browser, url, html, "approve", understood="yes")
    second = press(browser, url, html, "approve", understood="yes")
    assert (first.status_code, second.status_code) == (302, 302)
    assert first.headers["Location"] == second.headers["Location"]
    assert Decision.objects.count() == 1
    assert Entry.objects.filter(kind="approval.approved").count() == 1


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"v:/limit": "12a"}, "write a whole number"),
        ({"v:/limit": "0"}, "less than the minimum"),
        ({"k:/limit": "text"}, "is not of type"),
        ({"v:/batch": "another"}, "it would be another effect"),
        ({}, "Nothing was changed"),
    ],
)
def test_what_cannot_be_taken_is_said_where_it_is(stage, browser, batch, changed, said):
    url = edit_url(stage, batch)
    html = browser.get(url).content.decode()
    again = press(browser, url, html, "review", **changed)
    assert again.status_code == 422
    shown = unescape(again.content.decode())
    assert said in shown
    for value in changed.values():
        assert value in shown
    assert stage.request(batch.pk).state == "pending"


def test_a_yes_to_something_else_than_the_review_showed_counts_for_nothing(stage, browser, batch):
    url = edit_url(stage, batch)
    html = browser.get(url).content.decode()
    html = press(browser, url, html, "review", **{"v:/limit": "7"}).content.decode()
    other = json.dumps(ARGS | {"limit": 8})
    refused = press(browser, url, html, "approve", understood="yes", args_text=other)
    assert refused.status_code == 422
    assert "not what the review showed" in refused.content.decode()
    unread = press(browser, url, html, "approve")
    assert unread.status_code == 422
    assert "Tick that you understand" in unread.content.decode()
    assert stage.request(batch.pk).state == "pending"


def test_who_reviewed_too_long_is_told_what_happened(stage, browser, batch):
    url = edit_url(stage, batch)
    html = browser.get(url).content.decode()
    html = press(browser, url, html, "review", **{"v:/limit": "7"}).content.decode()
    greta = tokens.seat_operator("greta", group="approvers")
    stage.decide(batch.pk, "reject", by=greta)
    late = press(browser, url, html, "approve", understood="yes")
    assert late.status_code == 409
    assert "already rejected by greta" in late.content.decode()
    assert stage.claim() == []
    assert browser.get(url).status_code == 302


def test_a_get_of_the_edit_decides_nothing(stage, browser, batch):
    url = edit_url(stage, batch)
    for method in (browser.get, browser.head):
        assert method(url + "?do=approve").status_code == 200
    assert stage.request(batch.pk).state == "pending"
    browser.force_login(stage.viewer)
    assert browser.get(url).status_code == 302


def test_a_no_is_not_reopened_where_its_saga_has_turned_back(stage, browser, batch):
    """The form would help nobody there: it is not offered, and refused with the reason."""
    request = stage.request(batch.pk)
    stage.decide(batch.pk, "reject", reason="Not on a Sunday")
    page = reverse("approvals:approval-detail", args=[request.pk])
    assert "Let the agent ask again" not in browser.get(page).content.decode()
    sent = {"args_digest": request.args_digest, "reason": "Monday now"}
    refused = browser.post(reverse("approvals:reopen", args=[request.pk]), sent)
    assert refused.status_code == 409
    html = refused.content.decode()
    assert "the saga has turned back, so it takes no more steps" in html
    assert "Let the agent ask again" not in html
    assert not Entry.objects.filter(kind="approval.reopened").exists()


def test_a_rejected_request_is_reopened_on_its_page(stage, browser, late_batch):
    batch = late_batch
    request = stage.request(batch.pk)
    stage.decide(batch.pk, "reject", reason="Not on a Sunday")
    page = reverse("approvals:approval-detail", args=[request.pk])
    html = browser.get(page).content.decode()
    assert "Let the agent ask again" in html
    sent = {"args_digest": request.args_digest, "reason": ""}
    url = reverse("approvals:reopen", args=[request.pk])
    assert browser.post(url, sent).status_code == 422
    assert browser.post(url, sent | {"reason": "Monday now"}).status_code == 302
    html = browser.get(page).content.decode()
    assert "Reopened by olivia" in html
    assert "Let the agent ask again" not in html


def test_an_edited_yes_asks_for_the_password_and_loses_nothing_meanwhile(stage, browser, batch):
    """Case F6: what is at stake is the same, whoever wrote the version."""
    browser.logout()
    sign_in(browser, stage.approver, checked=False)
    url = edit_url(stage, batch)
    html = browser.get(url).content.decode()
    html = press(browser, url, html, "review", **{"v:/limit": "7"}).content.decode()
    assert 'name="password"' in html
    yes = {"understood": "yes", "reason": "Less."}
    for given, said in (("", "Give your password once more"), ("guess", "is not your password")):
        refused = press(browser, url, html, "approve", password=given, **yes)
        assert refused.status_code == 403
        html = refused.content.decode()
        assert said in html
        assert "Exactly this will run" in html
        assert ">Less.</textarea>" in html
    assert Approval.objects.count() == 1
    done = press(browser, url, html, "approve", password=PASSWORD, **yes)
    assert done.status_code == 302
    decision = Decision.objects.get()
    assert (decision.via, decision.address) == ("page", "127.0.0.1")
    assert decision.checked_at is not None
    assert json.loads(stage.request(batch.pk).args_text)["limit"] == 7


def test_reopening_asks_for_the_password_as_an_answer_does(stage, browser, late_batch, settings):
    batch = late_batch
    request = stage.request(batch.pk)
    stage.decide(batch.pk, "reject", reason="Not on a Sunday")
    browser.logout()
    sign_in(browser, stage.approver, checked=False)
    html = browser.get(reverse("approvals:approval-detail", args=[request.pk])).content.decode()
    assert 'id="reopen-password"' in html
    url = reverse("approvals:reopen", args=[request.pk])
    sent = {"args_digest": request.args_digest, "reason": "Monday now"}
    refused = browser.post(url, sent)
    assert refused.status_code == 403
    assert ">Monday now</textarea>" in refused.content.decode()
    assert browser.post(url, sent | {"password": "guess"}).status_code == 403
    settings.SAGA_TOKENS_DECIDE = "medium"
    caller = Caller(tokens.issue_operator_token(stage.approver))
    answer = caller.post(f"approvals/{request.pk}/reopen", sent)
    assert (answer.status_code, answer.json()["step_up"]) == (403, True)
    assert not Entry.objects.filter(kind="approval.reopened").exists()
    assert browser.post(url, sent | {"password": PASSWORD}).status_code == 302
    assert Entry.objects.filter(kind="approval.reopened").count() == 1


SECRET = """
[tools."vault.put"]
version = "1"
tier = "pivot"
blast_radius = "high"
[tools."vault.put".args]
type = "object"
[tools."vault.put".args.properties]
name = { type = "string" }
password = { type = "string" }
users = { type = "array", items = { type = "object" } }
[tools."vault.put".execute]
method = "POST"
url = "https://vault.example/v1/put"
"""


def test_who_edits_is_shown_no_secret_and_changes_none_unseen(stage, browser, settings):
    """Case G5: what comes back masked, as it was shown, is what it was."""
    Path(settings.SAGA_TOOLS).write_text(TOOLS + SECRET, encoding="utf-8")
    registry.cache_clear()
    args = {
        "name": "old",
        "password": "hunter2!",
        "users": [{"password": "first-one"}, {"password": "second-1"}],
    }
    saga = stage.saga()
    step = Step.objects.get(pk=stage.propose(saga, "put", "vault.put", args, "Rotate."))
    url = edit_url(stage, step)
    form = browser.get(url).content.decode()
    review = press(browser, url, form, "review", **{"v:/name": "new"}).content.decode()
    shifted = press(browser, url, form, "remove:/users/0").content.decode()
    refused = press(browser, url, shifted, "review", **{"v:/name": "new"})
    assert refused.status_code == 422
    assert "still masked" in refused.content.decode()
    done = press(browser, url, review, "approve", understood="yes")
    assert done.status_code == 302
    told = browser.get(done.headers["Location"]).content.decode()
    for html in (form, review, shifted, refused.content.decode(), told):
        assert not any(secret in html for secret in ("hunter2!", "first-one", "second-1"))
    assert json.loads(stage.request(step.pk).args_text) == args | {"name": "new"}


def test_a_secret_can_be_written_anew(stage, browser, settings):
    Path(settings.SAGA_TOOLS).write_text(TOOLS + SECRET, encoding="utf-8")
    registry.cache_clear()
    args = {"name": "old", "password": "hunter2!"}
    saga = stage.saga()
    step = Step.objects.get(pk=stage.propose(saga, "put", "vault.put", args, "Rotate."))
    url = edit_url(stage, step)
    form = browser.get(url).content.decode()
    review = press(browser, url, form, "review", **{"v:/password": "better-1"}).content.decode()
    assert press(browser, url, review, "approve", understood="yes").status_code == 302
    assert json.loads(stage.request(step.pk).args_text) == args | {"password": "better-1"}


# -- in Chromium --------------------------------------------------------------------------------


@pytest.fixture
def seated(
    stage: Stage, batch: Step, live_server: Any, browser_page: Page, monkeypatch: Any
) -> Page:
    monkeypatch.setenv("DJANGO_ALLOW_ASYNC_UNSAFE", "1")
    _ = stage.approver
    browser_page.goto(live_server.url + edit_url(stage, batch))
    browser_page.get_by_label("Username").fill("olivia")
    browser_page.get_by_label("Password").fill(PASSWORD)
    browser_page.get_by_role("button", name="Sign in").click()
    return browser_page


def part(page: Page, pointer: str) -> Any:
    return page.locator(f'[id="v:{pointer}"]')


@pytest.mark.browser
@pytest.mark.django_db(transaction=True)
def test_editing_in_a_browser_changes_only_what_was_changed(stage, seated, batch):
    part(seated, "/limit").fill("130000")
    seated.get_by_label("Kind of memo").select_option("text")
    part(seated, "/memo").fill("two\nlines")
    part(seated, "/dry_run").select_option("true")
    seated.get_by_role("button", name="Remove").first.click()
    expect(part(seated, "/lines/1/to")).to_have_count(0)
    seated.get_by_role("button", name="Review what would run").click()
    expect(seated.get_by_role("heading", name="Approve this version")).to_be_visible()
    seated.get_by_label("I understand that this cannot be undone").check()
    seated.get_by_role("button", name="Approve this version").dblclick()
    expect(seated.get_by_text("Approved by olivia.")).to_be_visible()
    expect(seated.get_by_role("heading", name="Edited by olivia")).to_be_visible()
    new = stage.request(batch.pk)
    assert json.loads(new.args_text) == ARGS | {
        "limit": 130_000,
        "memo": "two\nlines",
        "dry_run": True,
        "lines": [{"to": "acct_2", "cents": 5}],
    }
    assert Entry.objects.filter(kind="approval.approved").count() == 1
    assert Entry.objects.filter(kind="approval.late").count() == 0


@pytest.mark.browser
@pytest.mark.django_db(transaction=True)
def test_a_double_click_on_approve_is_one_decision(stage, seated, live_server, batch):
    """Cases B1, B3 and B7."""
    request = stage.request(batch.pk)
    seated.goto(live_server.url + reverse("approvals:approval-detail", args=[request.pk]))
    seated.get_by_label("I understand that this cannot be undone").check()
    seated.get_by_role("button", name="Approve", exact=True).dblclick()
    expect(seated.get_by_text("Approved by olivia.")).to_be_visible()
    expect(seated.get_by_role("alert")).to_have_count(0)
    assert Decision.objects.count() == 1
    assert Entry.objects.filter(kind__in=("approval.approved", "approval.late")).count() == 1


@pytest.mark.browser
@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("width", [390, 768, 1440])
def test_the_form_and_its_review_fit_every_window(seated, live_server, width):
    seated.set_viewport_size({"width": width, "height": 900})
    seated.reload()
    fits = "document.documentElement.scrollWidth <= window.innerWidth"
    assert seated.evaluate(fits)
    shots = os.environ.get("SHOTS")
    for scheme in ("light", "dark") if shots else ():
        seated.emulate_media(color_scheme=scheme)
        seated.screenshot(path=f"{shots}/edit-{scheme}-{width}.png", full_page=True)
    part(seated, "/limit").fill("130000")
    part(seated, "/lines/0/cents").fill("1000")
    seated.get_by_role("button", name="Review what would run").click()
    expect(seated.get_by_role("heading", name="Approve this version")).to_be_visible()
    assert seated.evaluate(fits)
    for scheme in ("light", "dark") if shots else ():
        seated.emulate_media(color_scheme=scheme)
        seated.screenshot(path=f"{shots}/review-{scheme}-{width}.png", full_page=True)
