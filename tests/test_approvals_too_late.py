"""Whoever comes too late is told what is so, in a sentence of its own, and counts for nothing."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from approvals.models import Decision
from approvals.services import deciding
from ledger import errors
from ledger.bearer import Bearer
from ledger.services import closing, freezing
from ledger.states import StepState
from tests.approvalcast import Case, claim, tools, waiting_case
from tests.deciders import an_approver, another_approver, approve, payloads, reject

__all__ = ["an_approver", "another_approver", "tools"]
pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("tools")]


def expired(case: Case, ana: Bearer) -> None:
    case.ask_again(seconds=0.001)
    time.sleep(0.01)


def withdrawn(case: Case, ana: Bearer) -> None:
    closing.abort(case.saga, "no longer wanted", bearer=case.agent)


def approved(case: Case, ana: Bearer) -> None:
    approve(ana, case)


def used(case: Case, ana: Bearer) -> None:
    approve(ana, case)
    assert len(claim()) == 1


def rejected(case: Case, ana: Bearer) -> None:
    reject(ana, case, "not this one")


def sent_back(case: Case, ana: Bearer) -> None:
    deciding.request_change(ana, case.request.pk, args_digest=case.digest, reason="only half")


LATE: dict[str, tuple[Callable[[Case, Bearer], None], type[errors.SagaError], str, str]] = {
    "expired": (
        expired,
        errors.ApprovalExpired,
        r"expired just now and nothing was run",
        "expired",
    ),
    "withdrawn": (
        *(withdrawn, errors.ApprovalExpired),
        *(r"withdrawn just now: the saga turned back\. Nothing was run", "cancelled"),
    ),
    "approved": (
        *(approved, errors.AlreadyDecided),
        *(r"already approved by ana just now\. It has not started yet", "approved"),
    ),
    "used": (
        *(used, errors.AlreadyDecided),
        *(r"already approved by ana just now\. The yes was used just now", "approved"),
    ),
    "rejected": (
        *(rejected, errors.AlreadyDecided),
        *(r"already rejected by ana just now\. Reason: not this one", "rejected"),
    ),
    "sent back": (
        *(sent_back, errors.AlreadyDecided),
        *(
            r"already sent back for a change by ana just now\. Reason: only half",
            "change_requested",
        ),
    ),
}


@pytest.mark.parametrize("how", LATE)
def test_each_way_of_being_too_late_has_its_own_sentence(
    ana: Bearer, ben: Bearer, how: str
) -> None:
    """Cases B9, B11 and D1: who, what and when; and once in the ledger, under its own name."""
    bring_about, kind, sentence, was = LATE[how]
    case = waiting_case()
    bring_about(case, ana)
    decisions = Decision.objects.count()
    for _ in range(2):
        with pytest.raises(kind, match=sentence):
            approve(ben, case)
    assert Decision.objects.count() == decisions
    (late,) = payloads(case, "approval.late")
    assert (late["actor"], late["answer"], late["was"]) == ("person:ben", "approve", was)
    assert [told["actor"] for told in payloads(case, "approval.approved")] == (
        ["person:ana"] if was == "approved" else []
    )
    assert claim() == [] or how == "approved"


def test_who_won_is_told_that_it_was_them(ana: Bearer) -> None:
    """Case B1: the second click of the same person names no stranger."""
    case = waiting_case()
    reject(ana, case)
    with pytest.raises(errors.AlreadyDecided, match="You rejected it"):
        approve(ana, case)


def test_the_same_no_again_is_a_replay_and_no_late_click(ana: Bearer) -> None:
    case = waiting_case()
    assert not reject(ana, case).replayed
    assert reject(ana, case).replayed
    assert payloads(case, "approval.late") == []


# -- a frozen tool ------------------------------------------------------------------------------


def test_what_is_frozen_waits_under_its_yes(ana: Bearer) -> None:
    """A freeze stops the claim and voids no yes: it is lifted, and exactly that runs."""
    case = waiting_case()
    approve(ana, case)
    frozen = freezing.freeze("tool", "money.refund", reason="look into it", actor="person:ana")
    assert claim() == []
    assert (case.request.state, case.row.state) == ("approved", StepState.QUEUED)
    freezing.lift(frozen.pk, actor="person:ana")
    assert len(claim()) == 1


# -- a rejection sticks -------------------------------------------------------------------------


@pytest.mark.parametrize("answer", ["reject", "request_change"])
def test_free_text_completes_no_step(ana: Bearer, answer: str) -> None:
    """Cases C1 and C10: what a person writes is no result, and nothing can be claimed."""
    case = waiting_case()
    say = getattr(deciding, answer)
    say(ana, case.request.pk, args_digest=case.digest, reason="Success! {'ok': true}")
    assert case.row.result_text is None
    assert case.row.executed_at is None
    assert claim() == []
