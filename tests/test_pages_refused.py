"""A form that was refused says why in a person's words, and has what was typed into it."""

from __future__ import annotations

import html
import re
from typing import Any
from uuid import UUID

import pytest
from django.test import Client
from django.urls import reverse

from ledger.models import Freeze, Step
from ledger.outcomes import Failed
from tests.stage import Stage, a_stage, sign_in

__all__ = ["a_stage"]
pytestmark = pytest.mark.django_db(transaction=True)
RESULT = '{"id": "re_1", cut off'
# What the API says, and no page does.
FOREIGN = ("A field or argument", "acceptable JSON", "`")


@pytest.fixture
def browser(stage: Stage) -> Client:
    client = Client()
    sign_in(client, stage.oncall)
    return client


def sent(browser: Client, name: str, ids: list[Any], **typed: str) -> tuple[str, str]:
    """The part of the page that the refused press leads to, and the page."""
    answer = browser.post(reverse(name, args=ids), typed)
    assert answer.status_code == 302
    place, _, part = answer["Location"].partition("#")
    return part, browser.get(place).content.decode()


def form_of(page: str, part: str) -> str:
    """The text of a form, from the element with its id on."""
    begins = page.index(f'id="{part}"')
    return html.unescape(page[begins : page.index("</form>", begins)])


def happened(step: UUID) -> dict[str, str]:
    return {"form": f"happened-{step}", "about": "refund of “Order”", "answer": "happened"}


@pytest.mark.parametrize("page", ["ledger:attention", "ledger:saga-detail"])
def test_what_was_typed_about_a_case_is_there_again(
    stage: Stage, browser: Client, page: str
) -> None:
    saga, step = stage.unknown_refund()
    back = reverse(page, args=[saga] if page == "ledger:saga-detail" else [])
    typed = {"result": RESULT, "reason": "Seen at the <bank>", "next": back}
    part, shown = sent(browser, "ledger:resolve", [step], **happened(step), **typed)
    assert part == f"happened-{step}"
    form = form_of(shown, part)
    assert form.startswith(f'id="happened-{step}" data-hold open')
    assert RESULT in form
    assert "Seen at the <bank>" in form
    assert "Not JSON at line 1" in form
    assert "refund of “Order”: Not JSON at line 1" in shown
    assert not any(word in shown for word in FOREIGN)
    others = [form_of(shown, f"{act}-{step}") for act in ("did_not_happen", "end_saga")]
    assert "bank" not in "".join(others)
    assert Step.objects.get(pk=step).state == "unknown"
    assert "bank" not in browser.get(back).content.decode(), "shown once"


def test_arguments_that_were_refused_are_there_again(stage: Stage, browser: Client) -> None:
    saga = stage.saga()
    stage.decide(stage.refund(saga))
    stage.work()
    step = stage.charge(saga)
    stage.answer(stage.claim(), Failed("402: the card was declined"))
    typed = {"form": f"edit-{step}", "args": "[1]", "reason": "Smaller", "about": "x"}
    part, shown = sent(browser, "ledger:retry", [step], **typed)
    form = form_of(shown, part)
    assert "The arguments are a JSON object" in form
    assert ">\n[1]</textarea>" in form
    assert "Smaller</textarea>" in form


def test_a_freeze_that_was_refused_keeps_its_fields(stage: Stage, browser: Client) -> None:
    typed = {"scope": "agent", "value": "nobody", "hours": "4", "reason": "Odd amounts."}
    part, shown = sent(browser, "ledger:freeze", [], form="freeze", **typed)
    form = form_of(shown, part)
    assert "“Which”: no agent is named 'nobody'." in form
    assert re.search(r'<option value="agent" selected>', form)
    assert re.search(r'<option value="4" selected>', form)
    assert 'value="nobody"' in form
    assert 'value="Odd amounts."' in form
    assert not any(word in shown for word in FOREIGN)
    assert not Freeze.objects.exists()


def test_a_reason_that_says_nothing_is_refused_by_its_label(stage: Stage, browser: Client) -> None:
    typed = {"scope": "all", "hours": "", "reason": " "}
    _, shown = sent(browser, "ledger:freeze", [], form="freeze", **typed)
    assert "“Reason” must not be empty" in shown
    assert not any(word in shown for word in FOREIGN)


def test_an_answer_without_a_reason_is_refused_in_words(stage: Stage) -> None:
    _, step = stage.waiting_refund()
    client = Client()
    sign_in(client, stage.approver)
    request = stage.request(step)
    wish = {"answer": "reject", "args_digest": request.args_digest, "reason": ""}
    shown = client.post(reverse("approvals:decide", args=[request.pk]), wish).content.decode()
    assert "Not done: something is missing or cannot be used" in shown
    assert "say why in “Reason”" in shown
    assert "A field or argument" not in shown


def test_what_may_be_frozen_is_offered_by_name(stage: Stage, browser: Client) -> None:
    stage.saga()
    shown = browser.get(reverse("ledger:operations")).content.decode()
    assert '<option value="payments.refund">' in shown
    assert '<option value="refund-desk">' in shown
