"""Corrections and lost questions: the gate away from the straight road."""

from __future__ import annotations

import time
from uuid import uuid4

import pytest

from approvals.gate import Gate
from approvals.services import deciding
from ledger import errors
from ledger.bearer import Bearer
from ledger.outcomes import Done, Outcome
from ledger.services import closing, recording
from ledger.services.opening import open_saga
from ledger.services.proposals import Opening
from ledger.states import SagaState, StepState
from tests.approvalcast import Case, agent, claim, person, tools, waiting_case

__all__ = ["tools"]
pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("tools")]


@pytest.fixture
def ana() -> Bearer:
    return person("ana", "approvers")


def approve(who: Bearer, case: Case) -> None:
    deciding.approve(who, case.request.pk, args_digest=case.digest)


def record(outcome: Outcome) -> None:
    """Claim the one thing that may run, and answer for its target."""
    (found,) = claim()
    recording.record(uuid4(), [recording.Finished(found, outcome)])


def corrected_case(ana: Bearer) -> Case:
    """A mail that went out, in a saga that is now turned back."""
    caller = agent(f"mailer-{uuid4().hex[:8]}")
    saga = open_saga(Opening(task_id="mail", name="Send the mail"), bearer=caller).saga
    case = Case(caller, saga, saga)
    case.step = case.propose("mail", "mail.send", id="m1")
    approve(ana, case)
    record(Done({"sent": True}))
    assert case.row.state == StepState.COMMITTED
    closing.abort(case.saga, "the customer changed their mind", bearer=case.agent)
    assert case.request.direction == "correct"
    return case


def test_a_correction_waits_for_its_own_yes(ana: Bearer) -> None:
    case = corrected_case(ana)
    assert claim() == []
    approve(ana, case)
    record(Done({"sent": True}))
    assert case.row.state == StepState.CORRECTED
    assert case.request.used_at is not None
    assert case.row.saga.state == SagaState.COMPENSATED


def test_a_correction_that_is_refused_leaves_residue(ana: Bearer) -> None:
    case = corrected_case(ana)
    deciding.reject(ana, case.request.pk, args_digest=case.digest, reason="it would confuse them")
    assert case.row.residue
    assert case.row.state == StepState.COMMITTED
    assert case.row.saga.state == SagaState.COMPENSATED
    assert claim() == []


def test_a_correction_cannot_be_sent_back_to_the_agent(ana: Bearer) -> None:
    case = corrected_case(ana)
    with pytest.raises(errors.InvalidArgs, match="agent's own step"):
        deciding.request_change(ana, case.request.pk, args_digest=case.digest, reason="nicer")
    assert case.request.state == "pending"


def lost_question() -> Case:
    """A question about a correction of a step that was never run."""
    case = waiting_case()
    case.ask_again(direction="correct", seconds=0.3)
    return case


def test_a_question_that_nothing_waits_for_is_withdrawn_when_answered(ana: Bearer) -> None:
    case = lost_question()
    with pytest.raises(errors.ApprovalExpired, match="no longer waits"):
        approve(ana, case)
    assert case.request.state == "cancelled"


def test_a_question_that_nothing_waits_for_is_swept_away(ana: Bearer) -> None:
    case = lost_question()
    time.sleep(0.4)
    assert Gate().sweep() == 1
    assert case.request.state == "cancelled"
    assert Gate().sweep() == 0
