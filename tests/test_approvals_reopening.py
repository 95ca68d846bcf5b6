"""A rejection sticks until a person reopens it, and then people are asked."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from uuid import uuid4

import pytest

from approvals.services import reopening
from ledger import errors
from ledger.bearer import Bearer
from ledger.models import Step
from ledger.outcomes import Done, Failed
from ledger.services import closing, recording
from ledger.services.proposals import AlternativeProposal, Proposal
from ledger.services.proposing import propose
from ledger.states import StepState
from tests.approvalcast import Case, claim, tools, waiting_case
from tests.deciders import an_approver, another_approver, approve, payloads, reject
from tests.shop import assert_verifies

__all__ = ["an_approver", "another_approver", "tools"]
pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("tools")]


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
