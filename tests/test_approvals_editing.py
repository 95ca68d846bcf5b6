"""Edit and approve: a person's version supersedes the agent's, and overwrites nothing."""

from __future__ import annotations

import json
from typing import Any

import pytest

from approvals.models import Approval, Decision
from approvals.services import deciding
from approvals.services.clicks import Decided
from ledger import errors
from ledger.bearer import Bearer
from ledger.services.proposals import Proposal
from ledger.services.proposing import propose
from ledger.states import StepState
from tests.approvalcast import (
    Case,
    claim,
    in_threads,
    tools,
    waiting_alternative,
    waiting_case,
)
from tests.deciders import an_approver, another_approver, payloads
from tests.shop import assert_verifies

__all__ = ["an_approver", "another_approver", "tools"]
pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("tools")]

LESS = {"id": "p1", "amount": 40}


def edit(who: Bearer, case: Case, args: Any = LESS, **more: Any) -> Decided:
    request = more.pop("request", None) or case.request
    told = {"args_digest": request.args_digest} | more
    return deciding.approve(who, request.pk, args=args, **told)


def test_what_was_proposed_decided_and_run_is_kept_apart(ana: Bearer) -> None:
    """Case A12: three facts, and only the edited one is called out for."""
    case = waiting_case()
    proposed = case.request
    key = case.row.idempotency_key
    decided = edit(ana, case, reason="only the part that was late")
    assert decided == Decided(case.request.pk, replayed=False)
    old, new = Approval.objects.order_by("id")
    assert (old.pk, old.state, old.superseded_by_id) == (proposed.pk, "superseded", new.pk)
    assert json.loads(old.args_text) == {"amount": 100, "id": "p1"}
    assert (new.state, json.loads(new.args_text)) == ("approved", {"amount": 40, "id": "p1"})
    (vote,) = Decision.objects.all()
    assert (vote.approval_id, vote.args_digest) == (new.pk, new.args_digest)
    assert case.row.state == StepState.QUEUED
    assert case.row.idempotency_key == new.idempotency_key != key
    (former,) = case.row.former
    assert former["edited_by"] == "ana"
    assert json.loads(former["args_text"]) == {"amount": 100, "id": "p1"}
    (ran,) = claim()
    assert dict(ran.call.args) == LESS
    assert ran.call.idempotency_key == new.idempotency_key
    first = payloads(case, "step.proposed")[0]
    assert first["args"] == {"amount": 100, "id": "p1"}
    (told,) = payloads(case, "approval.edited")
    assert (told["actor"], told["args_digest"]) == ("person:ana", proposed.args_digest)
    assert told["edited_digest"] == new.args_digest
    assert payloads(case, "attempt.started")[0]["args"] == LESS
    assert case.kinds() == [
        *("approval.requested", "approval.edited", "approval.requested", "approval.approved"),
    ]


def test_an_edited_alternative_is_told_under_the_key_that_the_target_sees(ana: Bearer) -> None:
    """So that a reader of the ledger sees one action proposed, shown, approved and run."""
    case = waiting_alternative(ana)
    edit(ana, case)
    (ran,) = claim()
    assert dict(ran.call.args) == LESS
    told = payloads(case, "step.revised")[-1]
    assert (told["alternative"], told["idempotency_key"]) == (1, ran.call.idempotency_key)


@pytest.mark.parametrize(
    ("args", "where"),
    [
        ({"id": "p1", "amount": "40"}, "/args/amount"),
        ({"id": "p1", "amount": 40, "note": "x"}, "/args/note"),
        ({"id": 7, "amount": 40}, "/args/id"),
    ],
)
def test_a_version_outside_the_schema_changes_nothing(
    ana: Bearer, args: dict[str, Any], where: str
) -> None:
    """Case A12 (a): and nothing of the refusal stays behind."""
    case = waiting_case()
    with pytest.raises(errors.InvalidArgs) as refused:
        edit(ana, case, args)
    assert [fault["pointer"] for fault in refused.value.extra["errors"]] == [where]
    assert case.request.state == "pending"
    assert (case.row.state, case.row.revision) == (StepState.AWAITING_APPROVAL, 1)
    assert case.kinds() == ["approval.requested"]
    assert claim() == []


def test_the_original_is_never_what_is_sent(ana: Bearer) -> None:
    """Case A12 (b): also when a worker has held the old message."""
    case = waiting_case()
    edit(ana, case)
    sent = [dict(found.call.args) for found in claim()]
    assert sent == [LESS]
    assert claim() == []


def test_arguments_that_change_nothing_are_a_plain_yes(ana: Bearer) -> None:
    case = waiting_case()
    decided = edit(ana, case, {"amount": 100.0, "id": "p1"})
    assert decided == Decided(case.request.pk, replayed=False)
    assert Approval.objects.count() == 1
    assert case.kinds() == ["approval.requested", "approval.approved"]


def test_the_same_edit_again_is_replayed_and_another_is_told_who_won(
    ana: Bearer, ben: Bearer
) -> None:
    case = waiting_case()
    shown = case.request
    first = edit(ana, case, request=shown)
    assert edit(ana, case, request=shown) == Decided(first.request, replayed=True)
    with pytest.raises(errors.StaleDigest, match="ana edited the arguments") as lost:
        edit(ben, case, {"id": "p1", "amount": 1}, request=shown)
    assert lost.value.extra["superseded_by"] == str(first.request)
    with pytest.raises(errors.StaleDigest, match="ana edited"):
        deciding.approve(ben, shown.pk, args_digest=shown.args_digest)
    assert case.kinds().count("approval.approved") == 1
    assert case.kinds().count("approval.late") == 2


def test_edits_and_yeses_at_once_have_one_winner(ana: Bearer, ben: Bearer) -> None:
    case = waiting_case()
    shown = case.request
    works = [
        lambda: edit(ana, case, {"id": "p1", "amount": 1}, request=shown),
        lambda: edit(ben, case, {"id": "p1", "amount": 2}, request=shown),
        lambda: deciding.approve(ben, shown.pk, args_digest=shown.args_digest),
        lambda: deciding.reject(ana, shown.pk, args_digest=shown.args_digest, reason="no"),
    ]
    found = in_threads(works)
    won = [one for one in found if isinstance(one, Decided)]
    # A no after a plain yes beats it, so two may be told that they were heard.
    assert 1 <= len(won) <= 2
    assert not any(one.replayed for one in won)
    kinds = case.kinds()
    assert kinds.count("approval.approved") + kinds.count("approval.rejected") == len(won)
    lost = [one for one in found if not isinstance(one, Decided)]
    assert all(isinstance(one, errors.StaleDigest | errors.AlreadyDecided) for one in lost), lost
    assert len(claim()) == (0 if "approval.rejected" in kinds else 1)


def test_an_edited_yes_still_needs_the_others(ana: Bearer, ben: Bearer) -> None:
    """A yes to the old digest counts for nobody; the editor's is the first to the new one."""
    case = waiting_case()
    case.ask_again(needs={"approvers": 2})
    deciding.approve(ben, case.request.pk, args_digest=case.digest)
    edit(ana, case)
    assert case.request.state == "pending"
    assert [n["count"] for n in case.request.needs] == [2]
    assert case.row.state == StepState.AWAITING_APPROVAL
    assert claim() == []
    deciding.approve(ben, case.request.pk, args_digest=case.digest)
    assert case.request.state == "approved"
    assert [dict(found.call.args) for found in claim()] == [LESS]


def test_an_edit_cannot_make_the_question_easier(ana: Bearer) -> None:
    """What was asked of two groups is asked of both, whatever the rule says of the new args."""
    case = waiting_case()
    case.ask_again(needs={"approvers": 1, "finance": 1}, policy="0" * 64)
    edit(ana, case)
    needs = {need["group"]: need["count"] for need in case.request.needs}
    assert needs == {"approvers": 1, "finance": 1}
    assert case.request.state == "pending"


def test_what_a_person_rejected_is_not_run_as_somebodys_edit(ana: Bearer, ben: Bearer) -> None:
    """Case A17: a no to exactly this cannot be out-voted by writing it again."""
    case = waiting_case(id="p1", amount=40)
    other = Case(case.agent, case.saga, case.step)
    other.step = case.propose("refund-2", id="p1", amount=100)
    deciding.reject(ben, case.request.pk, args_digest=case.digest, reason="never 40")
    # The saga turned back with the no, and the other question went with it.
    with pytest.raises(errors.ApprovalExpired):
        edit(ana, other)
    assert claim() == []


def test_an_edit_after_the_end_is_late(ana: Bearer) -> None:
    case = waiting_case()
    request = case.ask_again(seconds=0.001)
    with pytest.raises(errors.ApprovalExpired, match="nothing was run"):
        edit(ana, case)
    assert Approval.objects.get(pk=request).state == "expired"
    (late,) = payloads(case, "approval.late")
    assert (late["actor"], late["edited"]) == ("person:ana", True)
    assert claim() == []


def test_an_agent_cannot_edit(ana: Bearer) -> None:
    case = waiting_case()
    with pytest.raises(errors.Forbidden, match="agent's token"):
        edit(case.agent, case)
    assert case.request.state == "pending"


@pytest.mark.parametrize("step_id", ["refund-1", "refund-9"])
def test_the_agent_that_asks_for_the_original_is_told_that_it_was_edited(
    ana: Bearer, step_id: str
) -> None:
    """Case A14: under the same name or another, and nothing of it runs."""
    case = waiting_case()
    edit(ana, case)
    assert len(claim()) == 1
    original = Proposal(step_id, "money.refund", {"id": "p1", "amount": 100})
    for _ in range(2):
        with pytest.raises(errors.AlreadyDecided, match="decided: edited") as told:
            propose(case.saga, original, bearer=case.agent)
        assert told.value.extra["step"] == str(case.step)
        assert told.value.extra["differing_paths"] == ["/amount"]
    assert claim() == []
    assert Approval.objects.count() == 2
    (kept,) = payloads(case, "proposal.refused")
    assert (kept["why"], kept["decision"]) == (
        "already-decided",
        {"by": "ana", "answer": "edited"},
    )
    assert_verifies()


def test_the_edited_version_asked_for_by_the_agent_is_its_own_step(ana: Bearer) -> None:
    case = waiting_case()
    edit(ana, case)
    answer = propose(case.saga, Proposal("refund-1", "money.refund", LESS), bearer=case.agent)
    assert (answer.kind, answer.step) == ("in_flight", case.step)
