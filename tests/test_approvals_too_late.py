"""Whoever comes too late is told what is so, in a sentence of its own, and counts for nothing."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any
from uuid import uuid4

import pytest

from approvals.models import Decision
from approvals.services import deciding, reopening
from approvals.services.clicks import Decided
from ledger import errors
from ledger.bearer import Bearer
from ledger.models import Entry, Step
from ledger.outcomes import Done, Failed
from ledger.services import closing, freezing, recording
from ledger.services.proposals import AlternativeProposal, Proposal
from ledger.services.proposing import propose
from ledger.states import StepState
from tests.approvalcast import Case, claim, person, tools, waiting_case
from tests.shop import assert_verifies

__all__ = ["tools"]
pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("tools")]


@pytest.fixture
def ana() -> Bearer:
    return person("ana", "approvers")


@pytest.fixture
def ben() -> Bearer:
    return person("ben", "approvers")


def approve(who: Bearer, case: Case, **more: Any) -> Decided:
    request = more.pop("request", None) or case.request
    return deciding.approve(who, request.pk, args_digest=request.args_digest, **more)


def reject(who: Bearer, case: Case, reason: str = "wrong customer") -> Decided:
    return deciding.reject(who, case.request.pk, args_digest=case.digest, reason=reason)


def payloads(case: Case, kind: str) -> list[dict[str, Any]]:
    found = Entry.objects.filter(saga_id=case.saga, kind=kind).order_by("seq")
    return [{"actor": entry.actor, **json.loads(entry.payload)} for entry in found]


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


def past_the_pivot(ana: Bearer) -> Case:
    """A saga that can only go forward, so that it takes more steps after a no."""
    case = waiting_case(id="p0", amount=1)
    approve(ana, case)
    (ran,) = claim()
    recording.record(ran.token, [recording.Finished(ran, Done({}))])
    return case


def test_a_rejection_sticks_until_a_person_reopens_it(ana: Bearer, ben: Bearer) -> None:
    """Case C8: refused under another name too, with the decision named, and kept in the ledger."""
    case = past_the_pivot(ana)
    case.step = case.propose("refund-2", id="p1", amount=100)
    reject(ana, case, "wrong customer")
    again = Proposal("refund-3", "money.refund", {"amount": 100, "id": "p1"})
    for _ in range(2):
        with pytest.raises(errors.PreviouslyRejected, match="ana rejected exactly this") as told:
            propose(case.saga, again, bearer=case.agent)
    decision = told.value.extra["decision"]
    assert (decision["by"], decision["reason"]) == ("ana", "wrong customer")
    assert decision["approval"] == str(case.request.pk)
    (kept,) = payloads(case, "proposal.refused")
    assert (kept["why"], kept["of"]) == ("previously-rejected", str(case.step))
    assert not Step.objects.filter(step_id="refund-3").exists()
    no = case.request
    reopening.reopen(ben, no.pk, args_digest=no.args_digest, reason="it was the right one")
    case.step = propose(case.saga, again, bearer=case.agent).step
    assert case.row.state == StepState.AWAITING_APPROVAL
    assert "rejected exactly this as step 'refund-2'" in case.request.why
    assert_verifies()
    (entry,) = payloads(case, "approval.reopened")
    assert (entry["actor"], entry["reason"]) == ("person:ben", "it was the right one")
    # A second no closes it again.
    reject(ben, case, "no, really")
    with pytest.raises(errors.PreviouslyRejected, match="no, really"):
        propose(case.saga, Proposal("refund-4", "money.refund", again.args), bearer=case.agent)


def test_what_was_rejected_is_no_other_steps_second_choice(ana: Bearer) -> None:
    """Neither when it is proposed as one, nor when it was rejected after that."""
    case = past_the_pivot(ana)
    way = AlternativeProposal("money.refund", {"amount": 100, "id": "p1"})
    other = Proposal("other", "money.refund", {"id": "p9", "amount": 2}, alternatives=(way,))
    first = replace(case, step=propose(case.saga, other, bearer=case.agent).step)
    case.step = case.propose("refund-2", id="p1", amount=100)
    reject(ana, case, "wrong customer")
    late = Proposal("later", "money.refund", {"id": "p8", "amount": 2}, alternatives=(way,))
    with pytest.raises(errors.PreviouslyRejected, match="ana rejected exactly this"):
        propose(case.saga, late, bearer=case.agent)
    approve(ana, first)
    (found,) = claim()
    recording.record(uuid4(), [recording.Finished(found, Failed("no such payment"))])
    assert first.row.state == StepState.STUCK
    assert "a person rejected exactly that as step 'refund-2'" in first.row.error["detail"]
    assert claim() == []
    assert_verifies()


def test_people_hear_every_reason_why_they_are_asked(ana: Bearer) -> None:
    """That it was reopened does not hide that it has been done meanwhile."""
    case = past_the_pivot(ana)
    case.step = case.propose("x", id="p1", amount=100)
    reject(ana, case)
    no = case.request
    reopening.reopen(ana, no.pk, args_digest=no.args_digest, reason="it was the right one")
    case.step = case.propose("y0", id="p1", amount=100)
    approve(ana, case)
    (found,) = claim()
    recording.record(uuid4(), [recording.Finished(found, Done({}))])
    case.step = case.propose("y1", id="p1", amount=100)
    assert "rejected exactly this as step 'x'" in case.request.why
    assert "looks like a duplicate of step 'y0' (committed)" in case.request.why


def test_variants_of_what_was_rejected_are_counted(ana: Bearer) -> None:
    from approvals.queries_rejections import rejected_variants

    case = past_the_pivot(ana)
    for number in (1, 2):
        case.step = case.propose(f"less-{number}", id="p1", amount=100 - number)
        reject(ana, case)
    case.step = case.propose("less-3", id="p1", amount=50)
    assert rejected_variants([case.request.pk]) == {case.request.pk: 2}
    other = waiting_case()
    assert rejected_variants([other.request.pk]) == {}


def turned_back(case: Case, ana: Bearer) -> None:
    reject(ana, case)


def closed_by_its_agent(case: Case, ana: Bearer) -> None:
    """Past the pivot, and nothing is left to do: it is completed at once."""
    approve(ana, case)
    (ran,) = claim()
    recording.record(ran.token, [recording.Finished(ran, Done({}))])
    case.step = case.propose("refund-2", id="p1", amount=100)
    reject(ana, case)
    closing.complete(case.saga, bearer=case.agent)


def closed_and_not_done(case: Case, ana: Bearer) -> None:
    """Past the pivot: the agent has no more steps, and one of them is still to run."""
    approve(ana, case)
    (ran,) = claim()
    recording.record(ran.token, [recording.Finished(ran, Done({}))])
    case.step = case.propose("refund-2", id="p1", amount=100)
    reject(ana, case)
    case.propose("note", tool="note.add", id="n1")
    closing.complete(case.saga, bearer=case.agent)


@pytest.mark.parametrize(
    ("ended", "said", "state"),
    [
        (turned_back, "the saga has turned back", "compensated"),
        (closed_by_its_agent, "the saga is completed", "completed"),
        (closed_and_not_done, "its agent has closed the saga", "running"),
    ],
)
def test_a_rejection_cannot_be_reopened_where_nothing_could_be_asked_again(
    ana: Bearer, ended: Callable[[Case, Bearer], None], said: str, state: str
) -> None:
    """The service says so, and an agent that asks again is not sent to the person for it."""
    case = waiting_case(id="p0", amount=100)
    ended(case, ana)
    no = case.request
    with pytest.raises(errors.SagaEnded, match=f"{said}, so it takes no more steps") as told:
        reopening.reopen(ana, no.pk, args_digest=no.args_digest, reason="it was right")
    assert told.value.extra["state"] == state
    assert payloads(case, "approval.reopened") == []
    again = Proposal("again", "money.refund", case.row.args)
    with pytest.raises(errors.PreviouslyRejected, match="takes no more steps") as refused:
        propose(case.saga, again, bearer=case.agent)
    assert "until a person reopens it" not in str(refused.value)
    assert_verifies()


def test_a_reopening_that_was_in_time_is_a_replay_for_ever(ana: Bearer) -> None:
    case = past_the_pivot(ana)
    case.step = case.propose("refund-2", id="p1", amount=100)
    reject(ana, case)
    no = case.request
    for replayed in (False, True):
        told = reopening.reopen(ana, no.pk, args_digest=no.args_digest, reason="it was right")
        assert told.replayed is replayed
        closing.complete(case.saga, bearer=case.agent)


def test_an_agent_cannot_reopen(ana: Bearer) -> None:
    case = waiting_case()
    reject(ana, case)
    with pytest.raises(errors.Forbidden):
        reopening.reopen(case.agent, case.request.pk, args_digest=case.digest, reason="please")
    assert payloads(case, "approval.reopened") == []


@pytest.mark.parametrize("answer", ["reject", "request_change"])
def test_free_text_completes_no_step(ana: Bearer, answer: str) -> None:
    """Cases C1 and C10: what a person writes is no result, and nothing can be claimed."""
    case = waiting_case()
    say = getattr(deciding, answer)
    say(ana, case.request.pk, args_digest=case.digest, reason="Success! {'ok': true}")
    assert case.row.result_text is None
    assert case.row.executed_at is None
    assert claim() == []
