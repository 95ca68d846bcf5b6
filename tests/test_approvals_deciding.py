"""A yes, a no and a wish for change: what each does, until when, and who may take it back."""

from __future__ import annotations

import time

import pytest

from approvals.gate import Gate
from approvals.models import Decision
from approvals.services import deciding
from ledger import errors, storage
from ledger.bearer import Bearer
from ledger.services import closing
from ledger.states import StepState
from tests.approvalcast import claim, person, tools, waiting_case
from tests.deciders import an_approver, another_approver, approve, payloads, reject

__all__ = ["an_approver", "another_approver", "tools"]
pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("tools")]


def test_a_yes_releases_the_step_in_the_same_transaction(ana: Bearer) -> None:
    case = waiting_case()
    assert not approve(ana, case, reason="checked the order").replayed
    assert case.row.state == StepState.QUEUED
    assert case.request.state == "approved"
    told = payloads(case, "approval.approved")[-1]
    assert told["actor"] == "person:ana"
    assert told["reason"] == "checked the order"
    assert told["args_digest"] == case.digest
    assert told["policy"] == case.request.policy_digest
    assert told["approval"] == str(case.request.pk)


def test_a_no_ends_the_step_and_keeps_its_reason(ana: Bearer) -> None:
    case = waiting_case()
    reject(ana, case)
    assert case.row.state == StepState.REJECTED
    assert case.row.error == {"code": "rejected", "detail": "wrong customer"}
    assert claim() == []


@pytest.mark.parametrize("reason", ["", "  \n"])
def test_a_no_needs_a_reason(ana: Bearer, reason: str) -> None:
    case = waiting_case()
    with pytest.raises(errors.InvalidArgs, match="reason"):
        reject(ana, case, reason)
    assert case.request.state == "pending"


def test_a_request_for_change_gives_the_agent_the_text(ana: Bearer) -> None:
    case = waiting_case()
    deciding.request_change(ana, case.request.pk, args_digest=case.digest, reason="only half")
    assert case.request.state == "change_requested"
    assert case.row.state == StepState.CHANGE_REQUESTED
    assert case.row.error == {"code": "change_requested", "detail": "only half"}


def test_the_agents_next_version_is_a_new_question(ana: Bearer) -> None:
    case = waiting_case(id="p1", amount=100)
    first = case.request
    deciding.request_change(ana, first.pk, args_digest=case.digest, reason="only half")
    case.propose("refund-1", id="p1", amount=50)
    first.refresh_from_db()
    assert case.request.pk != first.pk
    assert case.request.state == "pending"
    assert first.superseded_by_id == case.request.pk
    assert first.state == "change_requested"
    with pytest.raises(errors.StaleDigest):
        deciding.approve(ana, case.request.pk, args_digest=first.args_digest)
    approve(ana, case)
    assert [found.call.args for found in claim()] == [{"id": "p1", "amount": 50}]


def test_the_same_answer_of_the_same_person_is_replayed(ana: Bearer) -> None:
    case = waiting_case()
    approve(ana, case)
    assert approve(ana, case).replayed
    assert Decision.objects.count() == 1
    assert case.kinds("approval.a") == ["approval.approved"]


def test_another_person_is_told_who_what_and_when(ana: Bearer, ben: Bearer) -> None:
    case = waiting_case()
    approve(ana, case)
    with pytest.raises(errors.AlreadyDecided, match=r"approved by ana just now") as caught:
        approve(ben, case)
    assert caught.value.extra["decision"]["by"] == "ana"
    reject(ben, case, "not this one")
    with pytest.raises(errors.AlreadyDecided, match=r"rejected by ben .* Reason: not this one"):
        approve(ana, case)


def test_a_digest_that_is_not_the_current_one_decides_nothing(ana: Bearer) -> None:
    case = waiting_case()
    with pytest.raises(errors.StaleDigest) as caught:
        deciding.approve(ana, case.request.pk, args_digest="0" * 64)
    assert caught.value.extra["current_digest"] == case.digest
    assert case.request.state == "pending"
    assert not Decision.objects.exists()


def test_a_superseded_request_names_the_one_in_its_place(ana: Bearer) -> None:
    case = waiting_case()
    old = case.request
    newer = case.ask_again()
    with pytest.raises(errors.StaleDigest, match="was replaced") as caught:
        deciding.approve(ana, old.pk, args_digest=old.args_digest)
    assert caught.value.extra["superseded_by"] == str(newer)


def test_aborting_the_saga_withdraws_its_requests(ana: Bearer) -> None:
    case = waiting_case()
    closing.abort(case.saga, "no longer wanted", bearer=case.agent)
    assert case.request.state == "cancelled"
    with pytest.raises(errors.ApprovalExpired, match=r"withdrawn .* the saga turned back"):
        approve(ana, case)
    assert payloads(case, "approval.late")[-1]["was"] == "cancelled"
    assert not Decision.objects.exists()


def test_nobody_decides_about_what_does_not_exist(ana: Bearer) -> None:
    with pytest.raises(errors.NotFound):
        deciding.approve(ana, waiting_case().step, args_digest="0" * 64)


# -- until the claim, a later no beats a yes ------------------------------------------------


def test_a_later_no_beats_a_yes_that_is_not_used(ana: Bearer, ben: Bearer) -> None:
    case = waiting_case()
    approve(ana, case)
    reject(ben, case)
    assert case.request.state == "rejected"
    assert case.row.state == StepState.REJECTED
    assert claim() == []


def test_a_person_can_take_back_their_own_yes(ana: Bearer) -> None:
    case = waiting_case()
    approve(ana, case)
    reject(ana, case, "I misread it")
    assert claim() == []


def test_a_no_after_the_claim_is_told_that_it_was_started(ana: Bearer, ben: Bearer) -> None:
    case = waiting_case()
    approve(ana, case)
    assert len(claim()) == 1
    with pytest.raises(errors.AlreadyDecided, match="has been started under it"):
        reject(ben, case)
    assert case.request.state == "approved"


# -- races ----------------------------------------------------------------------------------


# -- the clock ------------------------------------------------------------------------------


def test_a_late_click_ends_the_request_and_is_noted_as_late(ana: Bearer) -> None:
    case = waiting_case()
    case.ask_again(seconds=0.05)
    time.sleep(0.1)
    with pytest.raises(errors.ApprovalExpired, match="nothing was run"):
        approve(ana, case)
    assert case.request.state == "expired"
    assert case.row.state == StepState.REJECTED
    assert case.kinds("approval.")[-2:] == ["approval.expired", "approval.late"]
    assert payloads(case, "approval.late")[-1]["actor"] == "person:ana"
    with pytest.raises(errors.ApprovalExpired):
        approve(ana, case)
    assert case.kinds().count("approval.expired") == 1
    assert case.kinds().count("approval.approved") == 0
    assert not Decision.objects.exists()


def test_a_sweep_leaves_what_is_not_due(ana: Bearer) -> None:
    case = waiting_case()
    assert Gate().sweep() == 0
    approve(ana, case)
    assert Gate().sweep() == 0
    assert case.request.state == "approved"


def test_a_yes_in_the_last_moment_holds_when_the_worker_wakes_later(ana: Bearer) -> None:
    """Case D13: the question's time is over by then, and the yes to it lasts as long again."""
    case = waiting_case()
    case.ask_again(seconds=1.0)
    time.sleep(0.7)
    approve(ana, case)
    time.sleep(0.5)
    request = case.request
    assert storage.row("SELECT clock_timestamp() > %s AS over", [request.expires_at]).over
    assert request.yes_until == request.decided_at + request.lasts
    assert len(claim()) == 1


def test_a_yes_that_nobody_used_in_its_time_is_asked_for_again(ana: Bearer) -> None:
    case = waiting_case()
    case.ask_again(seconds=0.2)
    approve(ana, case)
    used_up = case.request
    time.sleep(0.3)
    assert claim() == []
    used_up.refresh_from_db()
    assert used_up.state == "superseded"
    assert case.request.state == "pending"
    assert case.request.why == "The yes was not used in time."


# -- several people -------------------------------------------------------------------------


def test_several_needs_are_met_by_several_people(ana: Bearer) -> None:
    both = person("both", "approvers", "finance")
    case = waiting_case()
    case.ask_again(needs={"approvers": 1, "finance": 1})
    assert not approve(both, case).replayed
    assert case.request.state == "pending"
    assert approve(both, case).replayed
    assert case.row.state == StepState.AWAITING_APPROVAL
    approve(ana, case)
    assert case.request.state == "approved"
    assert case.kinds()[-2:] == ["approval.voted", "approval.approved"]
    assert len(claim()) == 1
