"""Editing and approving in a real Chromium."""

from __future__ import annotations

import json
import os
from typing import Any

import pytest
from django.urls import reverse
from playwright.sync_api import Page, expect

from approvals.models import Decision
from ledger.models import Entry, Step
from tests.editcast import ARGS, batch, edit_url
from tests.stage import PASSWORD, Stage, a_stage

__all__ = ["a_stage", "batch"]


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
