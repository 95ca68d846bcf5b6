"""An alternative is another action: a yes to the first choice says nothing about it."""

from __future__ import annotations

from dataclasses import replace
from uuid import uuid4

import pytest
from django.contrib.auth.models import User

from approvals.models import Approval
from ledger.bearer import Bearer
from ledger.outcomes import Done, Failed, Outcome
from ledger.services import recording
from ledger.services.proposals import AlternativeProposal, Proposal
from ledger.services.proposing import propose
from ledger.states import StepState
from tests.approvalcast import Case, claim, tools, waiting_case
from tests.deciders import an_approver, approve

__all__ = ["an_approver", "tools"]
pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("tools")]


def record(outcome: Outcome) -> None:
    """Claim the one thing that may run, and answer for its target."""
    (found,) = claim()
    recording.record(uuid4(), [recording.Finished(found, outcome)])


def alternative_case(ana: Bearer) -> Case:
    """The approved refund failed for good, and another way of doing it is next."""
    case = waiting_case()
    way = AlternativeProposal("money.refund", {"id": "p2", "amount": 1})
    step = Proposal("other", "money.refund", {"id": "p9"}, alternatives=(way,))
    approve(ana, case)
    record(Done({}))
    case = replace(case, step=propose(case.saga, step, bearer=case.agent).step)
    approve(ana, case)
    record(Failed("no such payment"))
    assert case.row.alternative == 1
    return case


def test_an_alternative_is_asked_about_on_its_own(ana: Bearer) -> None:
    case = alternative_case(ana)
    assert case.row.state == StepState.AWAITING_APPROVAL
    assert Approval.objects.filter(step_id=case.step).count() == 2
    assert claim() == []
    approve(ana, case)
    assert [found.call.args for found in claim()] == [{"id": "p2", "amount": 1}]
    assert case.request.used_at is not None


def test_an_alternative_is_rechecked_too(ana: Bearer) -> None:
    case = alternative_case(ana)
    approve(ana, case)
    User.objects.get(pk=ana.user_id).groups.clear()
    assert claim() == []
