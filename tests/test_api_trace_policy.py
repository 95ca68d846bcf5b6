"""What a policy file adds to a saga, judged from outside by agentack: it must pass too."""

from __future__ import annotations

import json
import time
from typing import Any
from uuid import UUID

import pytest

from approvals.services import deciding, expiring
from ledger.bearer import Bearer
from ledger.services.closing import complete
from tests.approvalcast import person
from tests.policycast import under
from tests.shop import Shop, assert_verifies, states, work, work_saga
from tests.tracecast import PASS, ana, answer, check, events, read, refund, request_of

__all__ = ["ana", "check"]
pytestmark = pytest.mark.django_db(transaction=True)

ASK = '[[rule]]\nname = "refunds"\ntool = "payments.refund"\nverdict = "ask"\n'
LIMIT = """
[[limit]]
name = "a refund a day"
tool = "payments.refund"
sum = "args.amount"
by = "everyone"
per = "24h"
max = 150
over = "ask"
"""


def assert_passes(saga: UUID, shop: Shop, check: Any) -> None:
    code, said = check(read(saga, shop))
    assert code == PASS, said
    assert_verifies()


def finish(saga: UUID, shop: Shop) -> None:
    work(lambda: states(saga)["refund"] == "committed")
    complete(saga, bearer=shop.bearer)
    work_saga(saga, "completed")


def executed(saga: UUID) -> list[str]:
    return [e["action_id"] for e in events(saga) if e["type"] == "action_executed"]


def test_over_a_limit_it_is_asked_and_runs_after_a_yes(shop: Shop, ana: Bearer, check: Any) -> None:
    with under(ASK + LIMIT):
        first, second = shop.open(refund(shop)), shop.open(refund(shop))
        answer(ana, first)
        finish(first, shop)
        answer(ana, second)  # when it was asked it was not over the limit yet
        old = request_of(second)
        assert old.over_limits == []
        work(lambda: request_of(second).pk != old.pk)
        assert executed(second) == []
        answer(ana, second)
        finish(second, shop)
    assert_passes(second, shop, check)
    assert executed(second) == ["refund/forward/1"]


def test_a_question_that_was_passed_on(shop: Shop, ana: Bearer, check: Any) -> None:
    with under(ASK + 'expires = "5s"\nescalate_to = "oncall"\n'):
        saga = shop.open(refund(shop))
        time.sleep(5.1)
        expiring.sweep()
        assert request_of(saga).needs == [{"group": "oncall", "count": 1}]
        answer(person("oskar", "oncall"), saga)
        finish(saga, shop)
    assert_passes(saga, shop, check)


def test_a_policy_that_denies_after_the_yes(shop: Shop, ana: Bearer, check: Any) -> None:
    with under(ASK):
        saga = shop.open(refund(shop))
        answer(ana, saga)
    with under(ASK.replace('"ask"', '"deny"')):
        work_saga(saga, "compensated")
    assert executed(saga) == []
    assert_passes(saga, shop, check)


def test_a_policy_that_was_tightened_after_the_yes(shop: Shop, ana: Bearer, check: Any) -> None:
    with under(ASK):
        saga = shop.open(refund(shop))
        answer(ana, saga)
        old = request_of(saga)
    with under(ASK + 'need = [{group = "approvers", count = 2}]\n'):
        work(lambda: request_of(saga).pk != old.pk)
        answer(ana, saga)
        answer(person("ben", "approvers"), saga)
        finish(saga, shop)
    assert_passes(saga, shop, check)
    assert executed(saga) == ["refund/forward/1"]


@pytest.mark.parametrize("needs", ["", 'need = [{group = "approvers", count = 2}]\n'])
def test_an_edited_version_is_what_was_shown_answered_and_run(
    shop: Shop, ana: Bearer, check: Any, needs: str
) -> None:
    """Judged from outside: what ran is what the newest request showed, and never the proposal."""
    with under(ASK + needs):
        saga = shop.open(refund(shop))
        request = request_of(saga)
        args = json.loads(request.args_text) | {"amount": 7}
        deciding.approve(ana, request.pk, args_digest=request.args_digest, args=args)
        if needs:
            answer(person("ben", "approvers"), saga)
        finish(saga, shop)
    assert_passes(saga, shop, check)
    assert executed(saga) == ["refund/forward/2"]
    (ran,) = (e for e in events(saga) if e["type"] == "action_executed")
    assert ran["action"]["parameters"]["amount"] == 7
