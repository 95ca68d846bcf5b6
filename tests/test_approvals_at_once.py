"""Answers, claims and sweeps at the same moment: one winner, and all others are told the truth."""

from __future__ import annotations

import time

import pytest

from approvals.gate import Gate
from approvals.models import Approval, Decision
from approvals.services.deciding import Decided
from ledger import errors
from ledger.bearer import Bearer
from ledger.states import StepState
from tests.approvalcast import claim, in_threads, person, tools, waiting_case
from tests.deciders import an_approver, another_approver, approve, reject

__all__ = ["an_approver", "another_approver", "tools"]
pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("tools")]


def test_a_no_and_a_claim_at_the_same_time_have_one_winner(ana: Bearer, ben: Bearer) -> None:
    for _ in range(10):
        case = waiting_case()
        approve(ana, case)
        claimed, said = in_threads([claim, lambda case=case: reject(ben, case)])
        if claimed:
            assert isinstance(said, errors.AlreadyDecided)
            assert case.row.state == StepState.EXECUTING
        else:
            assert isinstance(said, Decided)
            assert case.row.state == StepState.REJECTED
            assert claim() == []


def test_twenty_people_make_one_decision_and_nineteen_are_told_the_truth() -> None:
    case = waiting_case()
    crowd = [person(f"p{index}", "approvers") for index in range(20)]
    found = in_threads([lambda who=who: approve(who, case) for who in crowd])
    won = [one for one in found if isinstance(one, Decided)]
    lost = [one for one in found if isinstance(one, errors.AlreadyDecided)]
    assert (len(won), len(lost)) == (1, 19)
    winner = Decision.objects.get().username
    assert all(f"approved by {winner}" in str(one) for one in lost)
    assert case.kinds("approval.approved") == ["approval.approved"]
    assert len(claim()) == 1


def test_a_yes_and_a_no_at_the_same_time_never_leave_both(ana: Bearer, ben: Bearer) -> None:
    for _ in range(10):
        case = waiting_case()
        in_threads([lambda c=case: approve(ana, c), lambda c=case: reject(ben, c)])
        # The no wins whichever came first, for the yes was not used.
        assert case.request.state == "rejected"
        assert case.row.state == StepState.REJECTED


def test_a_double_click_is_one_decision(ana: Bearer) -> None:
    case = waiting_case()
    found = in_threads([lambda: approve(ana, case)] * 8)
    assert sorted(one.replayed for one in found) == [False] + [True] * 7
    assert Decision.objects.count() == 1


def test_sweeps_side_by_side_end_a_request_once() -> None:
    """Case D8: exactly one terminal entry, and a sweep that comes again does nothing."""
    cases = [waiting_case() for _ in range(5)]
    for case in cases:
        case.ask_again(seconds=0.05)
    time.sleep(0.1)
    counts = in_threads([Gate().sweep] * 6)
    assert sum(counts) + Gate().sweep() == 5
    for case in cases:
        assert case.request.state == "expired"
        assert case.kinds().count("approval.expired") == 1
        assert case.row.error["code"] == "expired"
    assert Gate().sweep() == 0


def test_two_last_votes_at_once_still_approve(ana: Bearer, ben: Bearer) -> None:
    for _ in range(5):
        case = waiting_case()
        case.ask_again(needs={"approvers": 2})
        found = in_threads([lambda c=case: approve(ana, c), lambda c=case: approve(ben, c)])
        assert all(isinstance(one, Decided) for one in found), found
        assert case.request.state == "approved"
    assert Approval.objects.filter(state="approved").count() == 5
