"""Limits: taken at the claim, and together never over."""

from __future__ import annotations

import time
from typing import Any
from uuid import uuid4

import pytest
from django.contrib.auth.models import User

from approvals.models import Approval
from approvals.services import deciding
from ledger.bearer import Bearer
from ledger.models import Step
from ledger.outcomes import Done
from ledger.services import claiming, closing
from ledger.services.assignments import Assignment
from ledger.states import StepState
from tests.approvalcast import claim, in_threads, tools
from tests.limitcast import COUNT, SUM, ana, note, record, taken
from tests.policycast import under

__all__ = ["ana", "tools"]
pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("tools")]


def test_what_stays_within_the_limit_runs_and_counts() -> None:
    with under(SUM):
        case = note(4200)
        assert [found.step for found in claim()] == [case.step]
    assert taken() == 4200
    assert case.row.state == StepState.EXECUTING


def test_what_is_over_the_limit_is_asked_and_a_yes_lets_it_run_and_count(ana: Bearer) -> None:
    with under(SUM):
        first = note(4200)
        assert len(claim()) == 1
        second = note(1000, first.agent)
        assert claim() == []
        request = second.request
        assert second.row.state == StepState.AWAITING_APPROVAL
        assert "notes per agent and day" in request.why
        assert "this would make 5,200 of 5,000 in 24 h" in request.why
        assert request.over_limits == ["notes per agent and day"]
        assert taken() == 4200
        deciding.approve(ana, request.pk, args_digest=request.args_digest)
        assert [found.step for found in claim()] == [second.step]
    assert taken() == 5200


def test_a_yes_to_one_limit_is_none_to_another(ana: Bearer) -> None:
    with under(SUM):
        first = note(4200)
        assert len(claim()) == 1
        second = note(1000, first.agent)
        assert claim() == []
        old = second.request
        deciding.approve(ana, old.pk, args_digest=old.args_digest)
    with under(SUM + SUM.replace("per agent and day", "of all").replace("5000", "10")):
        assert claim() == []
        old.refresh_from_db()
        assert old.state == "superseded"
        assert set(second.request.over_limits) == {"notes per agent and day", "notes of all"}
    assert taken() == 4200


def test_who_left_the_group_lets_nothing_over_the_limit(ana: Bearer) -> None:
    with under(SUM):
        first = note(4200)
        assert len(claim()) == 1
        second = note(1000, first.agent)
        assert claim() == []
        deciding.approve(ana, second.request.pk, args_digest=second.digest)
        User.objects.get(pk=ana.user_id).groups.clear()
        assert claim() == []
        assert second.request.state == "pending"
    assert taken() == 4200


def test_each_agent_has_a_share_of_its_own() -> None:
    with under(SUM):
        cases = [note(4000), note(4000)]
        assert {found.step for found in claim()} == {case.step for case in cases}


def test_over_a_limit_that_denies_nothing_runs_and_nobody_is_asked() -> None:
    with under(COUNT):
        for _ in range(3):
            note(1)
        assert len(claim()) == 3
        case = note(1)
        assert claim() == []
    assert case.row.state == StepState.REJECTED
    assert case.row.error["code"] == "over_limit"
    assert "4 of 3 in 1 h" in case.row.error["detail"]
    assert case.row.attempts == 0
    assert not Approval.objects.filter(step_id=case.step).exists()


def test_sixteen_claims_at_once_stay_within_the_limit() -> None:
    for _ in range(16):
        note(700)
    limit = SUM.replace('by = "agent"', 'by = "everyone"').replace('over = "ask"', 'over = "deny"')
    with under(limit):

        def one_worker() -> list[Assignment]:
            return claiming.claim(uuid4(), 1)

        found = in_threads([one_worker] * 16)
    assert not [error for error in found if isinstance(error, Exception)]
    assert sum(len(one) for one in found) == 7
    assert taken() == 4900
    assert Step.objects.filter(state="executing").count() == 7
    assert Step.objects.filter(state="rejected", error__code="over_limit").count() == 9


def test_one_claim_of_many_counts_those_before_it_in_the_batch() -> None:
    with under(COUNT):
        for _ in range(5):
            note(1)
        assert len(claim()) == 3
    assert Step.objects.filter(state="rejected").count() == 2


def test_no_limit_holds_an_undo() -> None:
    nothing = SUM.replace("5000", "0").replace('over = "ask"', 'over = "deny"')
    case = note(4200)
    (found,) = claim()
    record(found, Done({"ok": True}))
    closing.abort(case.saga, "changed their mind", bearer=case.agent)
    with under(nothing):
        (undo,) = claim()
    assert undo.direction == "compensate"


@pytest.mark.parametrize("amount", [None, -5, 1e300])
def test_what_cannot_be_counted_is_asked_also_where_the_limit_denies(amount: Any) -> None:
    with under(SUM.replace('over = "ask"', 'over = "deny"')):
        case = note(amount)
        assert claim() == []
    assert case.row.state == StepState.AWAITING_APPROVAL
    assert "cannot be counted" in case.request.why


def test_the_window_moves_with_the_databases_clock() -> None:
    with under(COUNT.replace('per = "1h"', 'per = "2s"')):
        for _ in range(3):
            note(1)
        assert len(claim()) == 3
        time.sleep(2.1)
        note(1)
        assert len(claim()) == 1
