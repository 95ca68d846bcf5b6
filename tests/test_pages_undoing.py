"""An undo and a correction are told as what they are: the tool's own leg, not the step again."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from django.test import Client
from django.urls import reverse

from approvals.models import Approval, Decision
from ledger.models import Step
from ledger.outcomes import Done, Failed
from ledger.services import closing, proposing
from ledger.services.proposals import AlternativeProposal, Proposal
from ledger.states import SagaState
from ledger.tools.installed import registry
from tests.policycast import under
from tests.stage import REFUND, TOOLS, Stage, a_stage, sign_in

__all__ = ["a_stage"]
pytestmark = pytest.mark.django_db(transaction=True)

ASK = """
[[rule]]
name = "undos"
direction = "compensate"
verdict = "ask"
need = [{group = "approvers", count = 1}]

[[rule]]
name = "corrections"
direction = "correct"
verdict = "ask"
need = [{group = "approvers", count = 1}]
"""
# The undo's body is a template, and two of its headers are not for everybody's eyes.
DECLARED = """
headers = { Authorization = "env:STAGE_PAYMENTS_AUTH", X-Desk = "refunds" }
[tools."payments.charge".compensate.form]
charge = "{result.id}"
password = "{args.customer}"
secret = "in the file"
"""
VOID = 'url = "https://payments.example/v1/charges/void"'
RESULT = {"id": "ch_3PqLw8", "client_secret": "cs_live_8841"}
CODE = '''
from ledger.tools.python import tool

@tool("desk.notice", version="7", tier="non_compensatable", blast_radius="low",
      args={"type": "object", "properties": {"to": {"type": "string"}}})
class Notice:
    """Put up a notice"""

    def execute(self, call):
        return {}

    def correct(self, call):
        """Puts up a second notice that takes the first one back.

        Nothing of this line is on the page.
        """
        return {}
'''


@pytest.fixture
def browser(stage: Stage) -> Client:
    client = Client()
    sign_in(client, stage.approver)
    return client


def declare(text: str, settings: Any) -> None:
    Path(settings.SAGA_TOOLS).write_text(text, encoding="utf-8")
    registry.cache_clear()


def asked(stage: Stage, tool: str, args: Any, result: Any = RESULT) -> tuple[UUID, Approval]:
    """A saga that turned back: its step, and the request about the way back."""
    saga = stage.saga()
    step = stage.propose(saga, "first", tool, args)
    stage.work(Done(result))
    closing.abort(saga, "no longer wanted", bearer=stage.agent)
    return step, stage.request(step)


def page(browser: Client, request: Approval) -> str:
    found = browser.get(reverse("approvals:approval-detail", args=[request.pk]))
    return str(found.content.decode())


def test_an_undo_shows_the_leg_that_runs_and_what_it_is_given(
    stage: Stage, browser: Client, settings: Any
) -> None:
    declare(TOOLS.replace(VOID, VOID + DECLARED), settings)
    with under(ASK):
        step, request = asked(stage, "payments.charge", {"customer": "cus_81", "amount": 7})
        assert request.direction == "compensate"
        html = page(browser, request)
        assert "The undo that will run</h2>" in html
        assert "Exactly this" not in html
        assert "Undoes the effect of <b>first</b> (payments.charge)" in html
        assert "the tool's own <code>compensate</code>" in html
        assert "POST https://payments.example/v1/charges/void" in html
        assert request.tool_digest in html
        for said in ("{result.id}", "{args.customer}", "env:STAGE_PAYMENTS_AUTH", "ch_3PqLw8"):
            assert said in html
        for secret in ("Bearer of a test", "in the file", "cs_live_8841"):
            assert secret not in html
        # What is undone can be done again: nothing to understand first.
        assert 'name="understood"' not in html
        stage.decide(step)
        assert "The undo that will run</h2>" in page(browser, request)
        stage.work()
        assert "The undo that was approved</h2>" in page(browser, request)


def test_an_undo_that_was_refused_is_not_told_as_one_that_will_run(
    stage: Stage, browser: Client
) -> None:
    with under(ASK):
        step, request = asked(stage, "orders.cancel", {"order": "8841"})
        assert "<dt>Its body</dt><dd>the step's arguments as JSON</dd>" in page(browser, request)
        stage.decide(step, "reject")
        assert "The undo that was asked about</h2>" in page(browser, request)


def test_a_correction_must_be_understood_for_it_cannot_be_undone(
    stage: Stage, browser: Client
) -> None:
    with under(ASK):
        step, request = asked(stage, "mail.send", {"to": "ada@example.com", "text": "Sent."})
        assert request.direction == "correct"
        html = page(browser, request)
        assert "The correction that will be sent</h2>" in html
        assert "Corrects the effect of <b>first</b> (mail.send)" in html
        assert "POST https://mail.example/send-correction" in html
        decide = reverse("approvals:decide", args=[request.pk])
        sent = {"answer": "approve", "args_digest": request.args_digest}
        refused = browser.post(decide, sent)
        assert refused.status_code == 422
        assert "Tick that you understand" in refused.content.decode()
        assert not Decision.objects.exists()
        assert browser.post(decide, sent | {"understood": "yes"}).status_code == 302
        stage.work()
        found = Step.objects.select_related("saga").get(pk=step)
        assert (found.state, found.saga.state) == ("corrected", SagaState.COMPENSATED)


def test_a_correction_is_not_said_yes_to_in_bulk(stage: Stage, browser: Client) -> None:
    with under(ASK):
        _, request = asked(stage, "mail.send", {"to": "ada@example.com", "text": "Sent."})
        item = f"{request.pk}:{request.args_digest}"
        sent = {"answer": "approve", "item": item, "sure": "yes", "reason": "Fine."}
        html = browser.post(reverse("approvals:bulk"), sent).content.decode()
        assert "It cannot be undone: say yes to it on its own page." in html
        assert not Decision.objects.exists()


def test_code_says_of_itself_what_it_does(
    stage: Stage, browser: Client, settings: Any, tmp_path: Path, monkeypatch: Any
) -> None:
    app = tmp_path / "desk_of_a_test"
    app.mkdir()
    (app / "__init__.py").touch()
    (app / "tools.py").write_text(CODE, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    settings.INSTALLED_APPS = [*settings.INSTALLED_APPS, "desk_of_a_test"]
    registry.cache_clear()
    with under(ASK):
        _, request = asked(stage, "desk.notice", {"to": "all"}, result={"pinned": True})
        html = page(browser, request)
    assert "Puts up a second notice that takes the first one back." in html
    assert "Nothing of this line" not in html
    assert "Python, desk_of_a_test.tools.Notice" in html
    assert "pinned" in html


def test_an_alternative_has_its_own_target(stage: Stage, browser: Client) -> None:
    """The first choice, which failed, was to go elsewhere."""
    saga = stage.saga()
    other = AlternativeProposal("payments.refund", REFUND)
    first = Proposal("pay", "orders.cancel", {"order": "8841"}, alternatives=(other,))
    step = proposing.propose(saga, first, bearer=stage.agent).step
    stage.answer(stage.claim(), Failed("404: no such order"))
    request = stage.request(step)
    assert request.tool == "payments.refund"
    html = page(browser, request)
    assert "POST https://payments.example/v1/refunds" in html
    assert "https://orders.example" not in html
    assert "wants to <strong>refund a payment</strong>" in html
    assert "cannot be undone</span>" in html
    assert 'name="understood"' in html
