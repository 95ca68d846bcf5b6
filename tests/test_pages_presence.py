"""Step-up: what is at stake asks for the password again. And the pages of who decides."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.core.management import call_command
from django.test import Client
from django.urls import reverse

from approvals.models import Decision, Delegation, Review
from ledger.outcomes import Failed
from ledger.services import proposing, tokens
from ledger.services.proposals import AlternativeProposal, Proposal
from tests.apicast import Caller
from tests.policycast import under
from tests.stage import PASSWORD, REFUND, Stage, a_stage, sign_in

__all__ = ["a_stage"]


@pytest.fixture
def browser(stage: Stage) -> Client:
    """A session whose password was given long ago."""
    client = Client()
    sign_in(client, stage.approver, checked=False)
    return client


def post(browser: Client, stage: Stage, step: Any, answer: str, **fields: Any) -> Any:
    request = stage.request(step)
    sent = {"answer": answer, "args_digest": request.args_digest, "understood": "yes"} | fields
    return browser.post(reverse("approvals:decide", args=[request.pk]), sent)


def page_of(browser: Client, stage: Stage, step: Any) -> str:
    address = reverse("approvals:approval-detail", args=[stage.request(step).pk])
    return browser.get(address).content.decode()


@pytest.mark.parametrize("answer", ["approve", "reject", "request_change"])
def test_a_high_blast_radius_asks_for_the_password_again(stage, browser, answer):
    _, step = stage.waiting_refund()
    assert 'name="password"' in page_of(browser, stage, step)
    refused = post(browser, stage, step, answer, reason="Because")
    assert refused.status_code == 403
    assert "Give your password once more" in refused.content.decode()
    assert not Decision.objects.exists()
    wrong = post(browser, stage, step, answer, reason="Because", password="guess")
    assert wrong.status_code == 403
    html = wrong.content.decode()
    assert html.count("That is not your password") == 2  # above all, and at the field
    assert "Your password is needed" in html
    box = "approve" if answer == "approve" else "refuse"
    assert re.findall(r'id="([a-z]+)-password"[^>]*autofocus', html) == [box]
    assert not Decision.objects.exists()
    assert (
        post(browser, stage, step, answer, reason="Because", password=PASSWORD).status_code == 302
    )
    decision = Decision.objects.get()
    assert (decision.via, decision.address) == ("page", "127.0.0.1")
    assert datetime.now(UTC) - decision.checked_at < timedelta(minutes=1)


def test_a_password_that_was_given_lately_is_enough_until_the_setting_says_no(
    stage, browser, settings
):
    _, step = stage.waiting_refund()
    sign_in(browser, stage.approver)
    assert 'name="password"' not in page_of(browser, stage, step)
    settings.SAGA_STEP_UP_S = 0
    assert 'name="password"' in page_of(browser, stage, step)
    assert post(browser, stage, step, "approve").status_code == 403
    settings.SAGA_STEP_UP_S = 900
    assert post(browser, stage, step, "approve").status_code == 302


def test_signing_in_counts_as_a_check_and_another_persons_session_does_not(stage, browser):
    _, step = stage.waiting_refund()
    client = Client()
    sent = {"username": "olivia", "password": PASSWORD}
    assert client.post(reverse("login"), sent).status_code == 302
    assert 'name="password"' not in page_of(client, stage, step)
    assert 'name="password"' in page_of(browser, stage, step)


def test_the_password_of_somebody_else_is_not_yours(stage, browser):
    _, step = stage.waiting_refund()
    tokens.seat_operator("oskar", group="oncall", password="another horse battery")
    refused = post(browser, stage, step, "approve", password="another horse battery")
    assert refused.status_code == 403


def test_an_alternative_asks_for_the_password_by_its_own_blast_radius(stage, browser):
    """The first choice, which failed, was small; what would run now is not."""
    saga = stage.saga()
    other = AlternativeProposal("payments.refund", REFUND)
    first = Proposal("pay", "orders.cancel", {"order": "8841"}, alternatives=(other,))
    step = proposing.propose(saga, first, bearer=stage.agent).step
    stage.answer(stage.claim(), Failed("404: no such order"))
    html = page_of(browser, stage, step)
    assert "high blast radius" in html
    assert 'name="password"' in html
    assert post(browser, stage, step, "approve").status_code == 403
    assert not Decision.objects.exists()


@pytest.mark.parametrize(("up_to", "status"), [("high", 200), ("medium", 403), ("none", 403)])
def test_how_far_a_token_decides_is_a_setting(stage, settings, up_to, status):
    _, step = stage.waiting_refund()
    settings.SAGA_TOKENS_DECIDE = up_to
    caller = Caller(tokens.issue_operator_token(stage.approver))
    request = stage.request(step)
    answer = caller.post(
        f"approvals/{request.pk}/approve", {"args_digest": request.args_digest, "reason": "ok"}
    )
    assert answer.status_code == status, answer.content
    assert Decision.objects.count() == (1 if status == 200 else 0)
    if status == 403:
        assert answer.json()["step_up"] is True


# -- break-glass and reviews, by hand -----------------------------------------------------


def test_breaking_the_glass_on_the_page_is_loud_until_another_closes_it(stage, browser):
    _, step = stage.waiting_refund()
    oskar = stage.oncall
    sign_in(browser, oskar, checked=False)
    assert "Break the glass" not in page_of(browser, stage, step)
    call_command("break_glass", "oskar")
    html = page_of(browser, stage, step)
    assert "Break the glass" in html
    assert "Not yours to decide" in html
    address = reverse("approvals:break-glass", args=[stage.request(step).pk])
    sent = {"args_digest": stage.request(step).args_digest, "incident": "INC-9", "reason": "Fire"}
    assert browser.post(address, sent).status_code == 422  # not ticked
    ticked = sent | {"understood": "yes"}
    assert browser.post(address, ticked).status_code == 403  # no password
    assert browser.get(address).status_code == 405
    assert not Decision.objects.exists()
    assert browser.post(address, ticked | {"password": PASSWORD}).status_code == 302
    assert "broke the glass for incident INC-9" in page_of(browser, stage, step)
    reviews = reverse("approvals:reviews")
    review = Review.objects.get()
    close = reverse("approvals:close-review", args=[review.pk])
    assert "You broke the glass" in browser.get(reviews).content.decode()
    assert browser.post(close, {"finding": "all good"}).status_code == 403
    other = Client()
    sign_in(other, stage.approver)
    assert "The glass was broken" in other.get("/").content.decode()
    assert other.post(close, {"finding": ""}).status_code == 422
    assert other.post(close, {"finding": "Right, and documented."}).status_code == 302
    assert "The glass was broken" not in other.get("/").content.decode()
    assert "Right, and documented." in other.get(reviews).content.decode()


# -- out of office, by hand ----------------------------------------------------------------


def test_lending_ones_right_on_the_page(stage, browser):
    _, step = stage.waiting_refund()
    vera = stage.viewer
    ends = (datetime.now(UTC) + timedelta(days=2)).strftime("%Y-%m-%dT%H:%M")
    form = {"to": "vera", "ends_at": ends, "reason": "Annual leave"}
    cover = reverse("approvals:cover")
    assert browser.post(cover, form | {"ends_at": "soon"}).status_code == 422
    assert browser.post(cover, form | {"reason": ""}).status_code == 422
    assert browser.post(cover, form).status_code == 302
    assert "vera</" in browser.get(cover).content.decode()
    stand_in = Client()
    sign_in(stand_in, vera)
    html = page_of(stand_in, stage, step)
    assert "You answer for <b>olivia</b>" in html
    assert post(stand_in, stage, step, "approve").status_code == 302
    assert "Approved by vera for olivia" in page_of(stand_in, stage, step)
    withdraw = reverse("approvals:withdraw-cover", args=[Delegation.objects.get().pk])
    assert stand_in.post(withdraw).status_code == 404
    assert browser.post(withdraw).status_code == 302
    assert "withdrawn" in browser.get(cover).content.decode()


# -- many at once -------------------------------------------------------------------------


@pytest.fixture
def asked_about_charges(stage: Stage) -> Any:
    """Two charges that can be undone and one refund that cannot, all waiting for a person."""
    with under('[[rule]]\nname = "all"\ntool = "payments.*"\nverdict = "ask"\n'):
        steps = [stage.charge(stage.saga(task=f"c{n}"), "charge") for n in range(2)]
        yield [*steps, stage.refund(stage.saga(task="r"))]


def picks(stage: Stage, *steps: Any) -> list[str]:
    return [f"{r.pk}:{r.args_digest}" for r in map(stage.request, steps)]


def test_approving_many_takes_only_what_can_be_undone(stage, browser, asked_about_charges):
    steps = asked_about_charges
    bulk = reverse("approvals:bulk")
    inbox = browser.get("/").content.decode()
    for pick in picks(stage, *steps):
        assert f'value="{pick}"' in inbox
    listed = browser.post(bulk, {"answer": "approve", "item": picks(stage, *steps)})
    html = listed.content.decode()
    assert (listed.status_code, Decision.objects.count()) == (200, 0)
    assert "Approve 2" in html
    assert "say yes to it on its own page" in html
    assert 'name="password"' not in html  # the two that are left are no more than medium
    sure = {"answer": "approve", "item": picks(stage, *steps), "sure": "yes"}
    done = browser.post(bulk, sure | {"reason": "checked the list"}).content.decode()
    assert "2 applied" in done
    assert "1 failed" in done
    assert [stage.request(step).state for step in steps] == ["approved", "approved", "pending"]
    assert set(Decision.objects.values_list("via", flat=True)) == {"page-bulk"}


def test_rejecting_many_asks_for_the_password_once_and_reports_each(
    stage, browser, asked_about_charges
):
    first, second, refund = asked_about_charges
    bulk = reverse("approvals:bulk")
    seen = picks(stage, first, second, refund)
    stage.decide(first, "reject", by=stage.second)
    sent = {"answer": "reject", "item": seen}
    assert 'name="password"' in browser.post(bulk, sent).content.decode()
    sure = sent | {"sure": "yes", "reason": "The shop is closed"}
    without = browser.post(bulk, sure)
    assert "1 failed" in without.content.decode()  # the refund; the charge needed no password
    done = browser.post(bulk, sure | {"password": PASSWORD}).content.decode()
    assert "1 applied" in done
    assert "already rejected by ada" in done
    assert stage.request(refund).state == "rejected"


def test_bulk_decides_by_a_second_post_alone_and_by_the_digests_that_were_seen(
    stage, browser, asked_about_charges
):
    first = asked_about_charges[0]
    bulk = reverse("approvals:bulk")
    assert browser.get(bulk).status_code == 302
    stale = [f"{stage.request(first).pk}:{'0' * 64}"]
    sent = {"answer": "approve", "item": stale, "sure": "yes"}
    html = browser.post(bulk, sent).content.decode()
    assert "1 skipped" in html
    for wrong in (
        {"answer": "approve"},
        {"answer": "request_change", "item": stale},
        {"answer": "approve", "item": "no-id"},
        {"answer": "approve", "item": [f"{n:032x}:0" for n in range(51)]},
    ):
        assert browser.post(bulk, wrong | {"sure": "yes"}).status_code == 422
    assert not Decision.objects.exists()


def test_bulk_over_rest_reports_each(stage, asked_about_charges):
    first, second, refund = asked_about_charges
    stage.decide(second, "reject")
    caller = Caller(tokens.issue_operator_token(stage.second))
    items = [
        {"id": str(r.pk), "args_digest": r.args_digest}
        for r in map(stage.request, (first, second, refund))
    ]
    answer = caller.post("approvals/bulk", {"answer": "approve", "items": items, "reason": "ok"})
    assert answer.status_code == 200, answer.content
    told = [(one["outcome"], one["problem"]) for one in answer.json()["items"]]
    assert told == [("applied", None), ("skipped", "already-decided"), ("failed", "forbidden")]
    assert Decision.objects.get(approval=stage.request(first)).via == "api-bulk"
    twice = caller.post("approvals/bulk", {"answer": "approve", "items": [items[0], items[0]]})
    assert twice.status_code == 422
    agent = Caller(tokens.issue_agent_token("refund-desk"))
    assert agent.post("approvals/bulk", {"answer": "reject", "items": items}).status_code == 403
