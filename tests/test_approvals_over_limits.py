"""An alternative that a limit holds: one yes is one run of exactly that alternative."""

from __future__ import annotations

from uuid import uuid4

import pytest

from ledger import storage
from ledger.bearer import Bearer
from ledger.models import Step
from ledger.outcomes import Failed, Unknown
from ledger.services.opening import open_saga
from ledger.services.operating import resolve
from ledger.services.proposals import AlternativeProposal, Opening, Proposal
from ledger.services.proposing import propose
from ledger.services.recording import Finished, record
from tests.approvalcast import Case, agent, behind_the_ledger, claim, tools
from tests.deciders import an_approver, approve
from tests.doubtcast import due_now
from tests.policycast import under

__all__ = ["an_approver", "tools"]
pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("tools")]

POLICY = """
[[rule]]
name = "refunds"
tool = "money.*"
verdict = "allow"
[[limit]]
name = "day"
tool = "money.refund"
sum = "args.amount"
by = "everyone"
per = "24h"
max = {max}
over = "ask"
"""


def approved_alternative(ana: Bearer) -> Case:
    """Its first choice failed; the other was over a limit, and a person has approved it."""
    caller = agent("over-the-limit")
    opened = open_saga(Opening(task_id="task", name=""), bearer=caller).saga
    other = AlternativeProposal("money.refund", {"id": "other", "amount": 100})
    proposal = Proposal("one", "money.refund", {"id": "1", "amount": 1}, alternatives=(other,))
    case = Case(caller, opened, propose(opened, proposal, bearer=caller).step)
    (taken,) = claim()
    record(uuid4(), [Finished(taken, Failed("no", retryable=False))])
    assert claim() == []
    assert (case.request.state, case.row.state) == ("pending", "awaiting_approval")
    approve(ana, case)
    return case


def test_an_alternative_that_a_limit_held_runs_once_for_one_yes(ana: Bearer) -> None:
    with under(POLICY.format(max=5)):
        case = approved_alternative(ana)
        (taken,) = claim()
        assert taken.call.args == {"id": "other", "amount": 100}
        record(uuid4(), [Finished(taken, Unknown("cut"))])
        resolve(case.step, "did_not_happen", reason="looked", actor="person:ona")
        due_now()
        assert claim() == []
    assert (case.request.state, case.row.state) == ("pending", "awaiting_approval")


def test_a_yes_to_an_alternative_over_a_limit_that_was_not_used_in_time_is_asked_anew(
    ana: Bearer,
) -> None:
    with under(POLICY.format(max=5)):
        case = approved_alternative(ana)
        with behind_the_ledger() as cursor:
            cursor.execute(
                "UPDATE approvals_approval SET yes_until = clock_timestamp() - interval '1 s'"
            )
        assert claim() == []
    assert "not used in time" in case.request.why
    assert Step.objects.get(pk=case.step).alternative == 1


def test_who_may_no_longer_approve_an_alternative_over_a_limit_counts_no_more(ana: Bearer) -> None:
    with under(POLICY.format(max=5)):
        case = approved_alternative(ana)
    storage.execute("DELETE FROM auth_user_groups WHERE user_id = %s", [ana.user_id])
    with under(POLICY.format(max=500)):
        assert claim() == []
    assert case.request.state == "pending"
