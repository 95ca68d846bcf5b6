"""What a saga has left in the world, or may have; what waits for a yes on the way back."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest
from django.test import Client
from django.urls import reverse

from ledger.models import Saga
from ledger.outcomes import Done, Unknown
from ledger.queries import documents
from ledger.services import closing, operating
from tests.policycast import under
from tests.stage import Stage, a_stage, sign_in

__all__ = ["a_stage"]
pytestmark = pytest.mark.django_db(transaction=True)

ASK = """
[[rule]]
name = "the way back"
direction = "{}"
verdict = "ask"
need = [{{group = "approvers", count = 1}}]
"""
IN_DOUBT = "may or may not have been undone"
MAIL = {"to": "ada@example.com", "text": "On its way."}


@pytest.fixture
def browser(stage: Stage) -> Client:
    client = Client()
    sign_in(client, stage.approver)
    return client


def told(saga: UUID) -> list[tuple[Any, str]]:
    """Of each effect that is left, since when and why."""
    found = documents.saga(saga, absolute=str)
    assert found is not None
    return [(one["since"], one["why"]) for one in found["residue"]]


def page(browser: Client, saga: UUID) -> str:
    return browser.get(reverse("ledger:saga-detail", args=[saga])).content.decode()


def order(stage: Stage) -> tuple[UUID, UUID]:
    """A saga whose only effect is there: (saga, step)."""
    saga = stage.saga()
    step = stage.charge(saga)
    stage.work()
    return saga, step


def test_what_nobody_knows_is_not_told_as_left(stage: Stage, browser: Client) -> None:
    saga, step = stage.unknown_refund()
    operating.resolve(step, "end_saga", reason="Nobody can say.", actor="person:ona")
    assert Saga.objects.get(pk=saga).state == "compensated"
    assert told(saga) == [(None, "Nobody knows whether it happened.")]
    html = page(browser, saga)
    assert "Ended backwards, and something may be left." in html
    assert "One effect may be out there; nobody knows." in html
    assert "Nobody knows whether it happened." in html
    assert "still out in the world" not in html


def test_an_undo_in_doubt_that_was_skipped_is_told_as_in_doubt(
    stage: Stage, browser: Client
) -> None:
    saga, step = order(stage)
    closing.abort(saga, "no", bearer=stage.agent)
    stage.answer(stage.claim(), Unknown("the undo's connection was cut"))
    operating.resolve(step, "end_saga", reason="The bank is closed.", actor="person:ona")
    ((since, why),) = told(saga)
    assert since is not None
    assert why == "It happened, and nobody knows whether it was undone."
    assert "One effect may be out there; nobody knows." in page(browser, saga)


def test_an_effect_that_is_known_to_stay_is_told_as_staying(stage: Stage, browser: Client) -> None:
    saga, step = order(stage)
    with under(ASK.format("compensate")):
        closing.abort(saga, "no", bearer=stage.agent)
        stage.decide(step, "reject")
    ((since, why),) = told(saga)
    assert since is not None
    assert "a person refused or skipped it" in why
    html = page(browser, saga)
    assert "One effect is still out in the world." in html
    assert "nobody knows" not in html


@pytest.mark.parametrize(("direction", "noun"), [("compensate", "undo"), ("correct", "correction")])
def test_what_waits_for_a_yes_on_the_way_back_is_not_told_as_running(
    stage: Stage, browser: Client, direction: str, noun: str
) -> None:
    said = f"waits for a yes to its {noun}"
    saga = stage.saga()
    if direction == "correct":
        step = stage.propose(saga, "mail", "mail.send", MAIL)
    else:
        step = stage.charge(saga)
    stage.work(Done({}))
    with under(ASK.format(direction)):
        closing.abort(saga, "no", bearer=stage.agent)
        html = page(browser, saga)
        assert said in html
        assert reverse("approvals:approval-detail", args=[stage.request(step).pk]) in html
        assert "is being undone" not in html.partition("</strong>")[0]
        assert said in browser.get(reverse("ledger:saga-list")).content.decode()
        stage.decide(step)
    assert said not in page(browser, saga)
    assert said not in browser.get(reverse("ledger:saga-list")).content.decode()


def test_the_list_tells_an_undo_in_doubt_as_in_doubt(stage: Stage, browser: Client) -> None:
    saga, _ = order(stage)
    closing.abort(saga, "no", bearer=stage.agent)
    assert IN_DOUBT not in browser.get(reverse("ledger:saga-list")).content.decode()
    stage.answer(stage.claim(), Unknown("cut"))
    assert IN_DOUBT in browser.get(reverse("ledger:saga-list")).content.decode()


def test_a_correction_in_doubt_is_told_as_one(stage: Stage, browser: Client) -> None:
    saga = stage.saga()
    stage.propose(saga, "mail", "mail.send", MAIL)
    stage.work()
    closing.abort(saga, "no", bearer=stage.agent)
    stage.answer(stage.claim(), Unknown("cut"))
    html = page(browser, saga)
    assert "may or may not have been corrected" in html
    assert IN_DOUBT not in html


def test_a_saga_that_a_no_turned_back_says_whose_and_why(stage: Stage, browser: Client) -> None:
    saga, step = stage.waiting_refund()
    stage.decide(step, "reject", reason="The order was shipped <yesterday>.")
    html = page(browser, saga)
    banner = html.partition("<b>Turned back</b>")[2].partition("</div>")[0]
    assert "step refund was rejected" in banner
    assert "The order was shipped &lt;yesterday&gt;." in banner
    assert "olivia" in banner


def test_a_saga_that_its_agent_turned_back_says_so(stage: Stage, browser: Client) -> None:
    saga, step = stage.waiting_refund()
    stage.decide(step, "request_change", reason="Less, please.")
    closing.abort(saga, "changed my mind", bearer=stage.agent)
    banner = page(browser, saga).partition("<b>Turned back</b>")[2].partition("</div>")[0]
    assert "refund-desk" in banner
    assert "Less, please." not in banner


def test_attention_names_saga_and_tool_of_what_waits_for_an_agent(
    stage: Stage, browser: Client
) -> None:
    _, step = stage.waiting_refund()
    stage.decide(step, "request_change", reason="Less, please.")
    html = browser.get(reverse("ledger:attention")).content.decode()
    section = html.partition('id="change-title"')[2]
    assert "Refund order 8841" in section
    assert "payments.refund" in section


def test_the_last_try_of_a_case_is_told_in_words(stage: Stage, browser: Client) -> None:
    stage.stuck_undo()
    html = browser.get(reverse("ledger:attention")).content.decode()
    assert "<dd>of the undo, " in html
