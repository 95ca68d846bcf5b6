"""While nobody knows whether the pivot has happened a saga goes neither back nor forward, whoever
says no meanwhile: what the pivot came to decides (crash point P22)."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest
from django.test import Client
from django.urls import reverse

from approvals.services import expiring
from ledger import errors, storage
from ledger.actions import Action
from ledger.models import Entry, Saga, Step
from ledger.outcomes import Done, Failed
from ledger.queries.documents import residue
from ledger.services.cases import cases
from ledger.services.closing import abort
from ledger.services.operating import resolve
from ledger.services.proposals import AlternativeProposal, Proposal
from ledger.services.proposing import propose
from tests.approvalcast import Case
from tests.askingcast import times_are_over
from tests.doubtcast import CUT, ONA, due_now
from tests.doubtcast import expire as expire_lease
from tests.policycast import under
from tests.shop import assert_verifies, kinds, states
from tests.stage import REFUND, Stage, a_stage, sign_in

__all__ = ["a_stage"]

NO_CANCELLING = """
[[rule]]
name = "no cancelling"
tool = "orders.cancel"
verdict = "deny"
"""
BUSY = Failed("503: the target is busy", retryable=True)


class Course:
    """A charge that is done, the refund after it that is out, and a second one that waits for a
    person."""

    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        self.saga, self.pivot = stage.waiting_refund()
        stage.decide(self.pivot)
        self.out = stage.claim()
        self.held = stage.refund(self.saga, "second", payment_intent="pi_second")

    def pivot_answers(self, outcome: Any) -> None:
        self.stage.answer(self.out, outcome)

    @property
    def state(self) -> str:
        return Saga.objects.get(pk=self.saga).state

    @property
    def turned_for(self) -> str:
        return Saga.objects.get(pk=self.saga).ended_backward_why


@pytest.fixture
def course(stage: Stage) -> Course:
    return Course(stage)


def reject(course: Course) -> None:
    course.stage.decide(course.held, "reject", reason="Not twice.")


def expire(course: Course) -> None:
    # What is still to be checked at the COMMIT would keep its table from being altered.
    storage.execute("SET CONSTRAINTS ALL IMMEDIATE")
    times_are_over(Case(course.stage.agent, course.saga, course.held))
    storage.execute("SET CONSTRAINTS ALL DEFERRED")
    assert expiring.sweep()


def propose_what_is_denied(course: Course) -> None:
    with under(NO_CANCELLING):
        course.stage.propose(course.saga, "cancel", "orders.cancel", {"order": "8841"})


NOES = pytest.mark.parametrize(
    ("say_no", "why"),
    [
        (reject, "step second was rejected"),
        (expire, "step second was expired"),
        (propose_what_is_denied, "the policy denies step cancel"),
    ],
)


@NOES
def test_a_no_turns_nothing_back_while_the_pivot_is_out(
    course: Course, say_no: Any, why: str
) -> None:
    say_no(course)
    assert course.state == "running"
    assert kinds(course.saga, "saga.turn_waits", "step.cancelled") == [("saga.turn_waits", "")]
    assert why in Entry.objects.get(saga_id=course.saga, kind="saga.turn_waits").payload
    course.pivot_answers(Done({"id": "re_1"}))
    assert (course.state, course.turned_for) == ("running", "")
    assert {"charge": "committed", "refund": "committed"}.items() <= states(course.saga).items()
    assert_verifies()


@NOES
def test_a_pivot_that_did_not_happen_turns_the_saga_back_for_the_no(
    course: Course, say_no: Any, why: str
) -> None:
    """It is not tried again, though it could be: somebody has said no meanwhile."""
    say_no(course)
    assert course.state == "running"
    course.pivot_answers(BUSY)
    assert (course.state, course.turned_for) == ("compensating", why)
    assert states(course.saga)["refund"] == "failed"
    course.stage.work()
    assert course.state == "compensated"
    assert states(course.saga)["charge"] == "compensated"
    assert not Step.objects.filter(saga=course.saga, residue=True).exists()
    assert_verifies()


def test_a_pivot_in_doubt_holds_the_turn_until_somebody_knows(course: Course) -> None:
    course.pivot_answers(CUT)
    reject(course)
    assert (course.state, states(course.saga)["refund"]) == ("running", "unknown")
    resolve(course.pivot, "happened", result={"id": "re_1"}, reason="I saw it", actor=ONA)
    assert (course.state, course.turned_for) == ("running", "")
    assert_verifies()


def test_an_operator_is_told_that_the_saga_turns_back_when_it_did_not_happen(
    course: Course,
) -> None:
    course.pivot_answers(CUT)
    reject(course)
    assert course.state == "running"
    offers = {offer.action: offer.does for offer in cases([course.pivot])[course.pivot].offers}
    assert "recorded as failed" in offers[Action.DID_NOT_HAPPEN]
    resolve(course.pivot, "did_not_happen", reason="I looked", actor=ONA)
    assert (course.state, course.turned_for) == ("compensating", "step second was rejected")
    assert_verifies()


def test_an_operator_may_end_a_saga_whose_turn_waits(course: Course) -> None:
    course.pivot_answers(CUT)
    reject(course)
    assert course.state == "running"
    resolve(course.pivot, "end_saga", reason="nobody will know", actor=ONA)
    course.stage.work()
    assert course.state == "compensated"
    assert Step.objects.get(pk=course.pivot).residue
    assert_verifies()


def test_a_person_reads_what_a_no_costs_while_the_pivot_is_out(course: Course) -> None:
    """A cost of the saga's way back is told under the condition on which it goes back."""
    browser = Client()
    sign_in(browser, course.stage.approver)
    request = course.stage.request(course.held)
    page = reverse("approvals:approval-detail", args=[request.pk])
    assert "not known yet; if it did not, the saga goes back" in browser.get(page).content.decode()
    course.pivot_answers(Done({"id": "re_1"}))
    assert "Nothing that already happened is touched" in browser.get(page).content.decode()


def charge(course: Course, step_id: str, amount: int) -> None:
    args = {"customer": "cus_81", "amount": amount}
    course.stage.propose(course.saga, step_id, "payments.charge", args)


def test_what_lies_between_two_pivots_stays_when_the_saga_is_ended_after_both(
    course: Course,
) -> None:
    course.pivot_answers(Done({"id": "re_1"}))
    course.stage.decide(course.held, "reject", reason="Not this one.")
    charge(course, "between", 1)
    course.stage.work()
    second = course.stage.refund(course.saga, "again", payment_intent="pi_again")
    course.stage.decide(second)
    charge(course, "after", 2)
    course.stage.work()
    last = course.stage.propose(course.saga, "last", "orders.cancel", {"order": "8841"})
    course.stage.work(Failed("404: no such order"))
    resolve(last, "end_saga", reason="enough", actor=ONA)
    course.stage.work()
    told = states(course.saga)
    assert (told["between"], told["after"]) == ("committed", "compensated")
    assert [left["step_id"] for left in residue([course.saga])[course.saga]] == [
        *("charge", "refund", "between", "again")
    ]
    assert_verifies()


CHARGE = {"customer": "cus_81", "amount": 250_000}


def with_a_second_choice(stage: Stage, first: tuple[str, Any], second: tuple[str, Any]) -> UUID:
    """A saga with a step whose first choice has failed, and whose second one is out."""
    saga = stage.saga()
    proposal = Proposal("one", *first, alternatives=(AlternativeProposal(*second),))
    step = propose(saga, proposal, bearer=stage.agent).step
    for outcome in (Failed("404: no such customer"), None):
        if Step.objects.get(pk=step).state == "awaiting_approval":
            stage.decide(step)
        taken = stage.claim()
        if outcome:
            stage.answer(taken, outcome)
    assert states(saga) == {"one": "executing"}
    return saga


def test_an_alternative_that_is_a_pivot_is_in_doubt_as_any_pivot(stage: Stage) -> None:
    saga = with_a_second_choice(stage, ("payments.charge", CHARGE), ("payments.refund", REFUND))
    with pytest.raises(errors.SagaEnded, match="or may have"):
        abort(saga, "no more", bearer=stage.agent)
    assert states(saga) == {"one": "executing"}


def test_a_pivot_that_failed_is_no_pivot_when_its_alternative_is_out(stage: Stage) -> None:
    saga = with_a_second_choice(stage, ("payments.refund", REFUND), ("payments.charge", CHARGE))
    abort(saga, "no more", bearer=stage.agent)
    assert Saga.objects.get(pk=saga).state == "compensating"


def test_a_turn_that_waited_for_a_pivot_comes_when_another_choice_happened(stage: Stage) -> None:
    """A late answer of the first choice, which can be undone: the no counts, as it did then."""
    saga = stage.saga()
    proposal = Proposal(
        "one",
        "payments.charge",
        CHARGE,
        alternatives=(AlternativeProposal("payments.refund", REFUND),),
    )
    step = propose(saga, proposal, bearer=stage.agent).step
    zombie = stage.claim()
    expire_lease(zombie[0])
    resolve(step, "did_not_happen", reason="I saw nothing", actor=ONA)
    due_now()
    stage.answer(stage.claim(), Failed("404: no such customer"))
    stage.decide(step)
    pivot = stage.claim()
    held = stage.refund(saga, "second", payment_intent="pi_second")
    stage.decide(held, "reject", reason="Not twice.")
    assert Saga.objects.get(pk=saga).state == "running"
    stage.answer(zombie, Done({"id": "ch_1"}))
    stage.answer(pivot, Failed("404: no such payment"))
    assert Saga.objects.get(pk=saga).ended_backward_why == "step second was rejected"
    stage.work()
    assert states(saga) == {"one": "compensated", "second": "rejected"}
    assert_verifies()


def test_what_an_alternative_leaves_is_told_by_its_own_tier(stage: Stage) -> None:
    saga = with_a_second_choice(stage, ("payments.charge", CHARGE), ("payments.refund", REFUND))
    Step.objects.filter(saga=saga).update(residue=True)
    (left,) = residue([saga])[saga]
    assert left["why"] == "It is a commitment point: nothing undoes it."
