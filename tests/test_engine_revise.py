"""The agent's next version of a step that a person asked to change."""

from __future__ import annotations

import json
from typing import Any
from uuid import uuid4

import pytest

from approvals.services import deciding
from ledger import errors
from ledger.bearer import Bearer
from ledger.models import Entry, OutboxMessage, Step
from ledger.models.fields import ClockTimestamp
from ledger.outcomes import Done, Failed, Unknown
from ledger.queries import shown
from ledger.services.assignments import Assignment
from ledger.services.opening import open_saga
from ledger.services.operating import resolve
from ledger.services.proposals import AlternativeProposal, Answer, Opening, Proposal
from ledger.services.proposing import propose
from ledger.services.recording import Finished, record
from tests.approvalcast import Case, agent, claim, person, tools, waiting_alternative
from tests.policycast import under
from tests.shop import assert_verifies
from tests.stage import Stage, a_stage

__all__ = ["a_stage", "tools"]
FAILED = Failed("no", retryable=False)
OTHER = {"id": "p1", "amount": 1}
LESS = {"id": "p1", "amount": 5}
NO_FIVES = """
[[rule]]
name = "no fives"
tool = "money.*"
when = "args.amount == 5"
verdict = "deny"
"""


@pytest.fixture
def ana(db: None) -> Bearer:
    return person("ana", "approvers")


def test_the_next_version_keeps_the_effect_that_the_step_holds(stage: Stage) -> None:
    saga = stage.saga()
    step = stage.refund(saga)
    stage.decide(step, "request_change")
    with pytest.raises(errors.StepMismatch, match="must keep its effect"):
        stage.refund(saga, payment_intent="pi_of_somebody_else")
    assert Step.objects.get(pk=step).state == "change_requested"
    stage.refund(saga, amount=1)
    assert Step.objects.get(pk=step).state == "awaiting_approval"


# -- a step whose first choice has failed, and that runs an alternative now ---------------------


def changed(ana: Bearer) -> Case:
    """`{"id": "p9"}` failed, and ana wants another version of `{"id": "p1", "amount": 7}`."""
    case = waiting_alternative(ana)
    deciding.request_change(ana, case.request.pk, args_digest=case.digest, reason="less, please")
    return case


def send(case: Case, first: Any, *others: Any, tool: str = "money.refund") -> Answer:
    """The agent's next version: a first choice, and alternatives (of the same tool, or named)."""
    ways = [
        other if isinstance(other, AlternativeProposal) else AlternativeProposal(tool, other)
        for other in others
    ]
    proposal = Proposal("refund-1", tool, first, alternatives=tuple(ways))
    return propose(case.saga, proposal, bearer=case.agent)


def approved(ana: Bearer, case: Case) -> Assignment:
    """What runs under ana's yes."""
    deciding.approve(ana, case.request.pk, args_digest=case.digest)
    (taken,) = claim()
    return taken


def answer(taken: Assignment, outcome: Any) -> None:
    record(uuid4(), [Finished(taken, outcome)])


@pytest.mark.usefixtures("tools")
def test_a_new_first_choice_is_what_is_asked_about_and_runs(ana: Bearer) -> None:
    case = changed(ana)
    assert send(case, OTHER).kind == "accepted"
    assert json.loads(case.request.args_text) == OTHER
    assert (case.row.alternative, case.row.alternatives, case.row.verdict) == (0, [], "ask")
    taken = approved(ana, case)
    assert taken.call.args == OTHER
    assert taken.call.idempotency_key == case.row.idempotency_key
    answer(taken, Done({"id": "made"}))
    assert case.row.state == "committed"
    assert send(case, OTHER).kind == "replayed"
    assert_verifies()


@pytest.mark.usefixtures("tools")
def test_the_alternatives_that_were_sent_with_it_come_after_it(ana: Bearer) -> None:
    case = changed(ana)
    send(case, OTHER, LESS, {"id": "p1", "amount": 2})
    answer(approved(ana, case), FAILED)
    assert (case.row.alternative, json.loads(case.request.args_text)) == (1, LESS)
    taken = approved(ana, case)
    assert (taken.call.args, taken.call.idempotency_key[:5]) == (LESS, "alt1:")
    answer(taken, FAILED)
    assert case.row.alternative == 2
    assert approved(ana, case).call.args == {"id": "p1", "amount": 2}
    assert_verifies()


@pytest.mark.usefixtures("tools")
def test_what_has_failed_is_not_run_again_when_only_the_alternative_is_changed(ana: Bearer) -> None:
    """The first choice as it was, and another alternative: that one is asked about."""
    case = changed(ana)
    assert send(case, {"id": "p9"}, LESS).kind == "accepted"
    assert (case.row.alternative, json.loads(case.request.args_text)) == (1, LESS)
    taken = approved(ana, case)
    assert (taken.call.args, taken.call.idempotency_key[:5]) == (LESS, "alt1:")
    answer(taken, Done({"id": "made"}))
    assert case.row.state == "committed"
    assert_verifies()


@pytest.mark.usefixtures("tools")
def test_another_alternative_may_use_another_tool(ana: Bearer) -> None:
    case = changed(ana)
    send(case, {"id": "p9"}, AlternativeProposal("mail.send", {"id": "sorry"}))
    assert case.request.tool == "mail.send"
    taken = approved(ana, case)
    assert (taken.tool.key, taken.call.args) == ("mail.send", {"id": "sorry"})
    assert_verifies()


@pytest.mark.usefixtures("tools")
def test_the_same_again_is_the_same_step_and_no_version(ana: Bearer) -> None:
    case = changed(ana)
    for again in (({"id": "p9"}, {"id": "p1", "amount": 7}), ({"id": "p9"},)):
        assert send(case, *again).kind == "in_flight"
    assert (case.row.state, case.row.revision, case.row.former) == ("change_requested", 1, [])
    with pytest.raises(errors.StepMismatch, match="must use the same tool"):
        send(case, {"id": "p9"}, tool="mail.send")


@pytest.mark.usefixtures("tools")
def test_what_was_tried_is_kept_as_former_with_its_place(ana: Bearer) -> None:
    case = changed(ana)
    send(case, OTHER)
    kept = [(old["alternative"], json.loads(old["args_text"])) for old in case.row.former]
    assert kept == [(0, {"id": "p9"}), (1, {"id": "p1", "amount": 7})]
    for entry in Entry.objects.filter(saga_id=case.saga):
        assert shown.payload_of(json.loads(entry.payload), case.saga, entry.step_id)


@pytest.mark.usefixtures("tools")
def test_the_alternatives_of_a_version_are_judged_too(ana: Bearer) -> None:
    """What the policy denies is not asked about, and what is asked about is rechecked."""
    case = changed(ana)
    with under(NO_FIVES):
        send(case, OTHER, LESS, {"id": "p1", "amount": 2})
        assert [one["verdict"] for one in case.row.alternatives] == ["deny", "ask"]
        deciding.approve(ana, case.request.pk, args_digest=case.digest)
        (taken,) = claim()
        answer(taken, FAILED)
        assert case.row.alternative == 2


@pytest.mark.usefixtures("tools")
def test_a_version_of_an_alternative_that_the_policy_denies_ends_the_step(ana: Bearer) -> None:
    case = changed(ana)
    with under('[[rule]]\nname = "none"\ntool = "money.*"\nverdict = "deny"\n'):
        send(case, {"id": "p9"}, LESS)
    assert (case.row.state, case.row.error["code"]) == ("rejected", "denied")


@pytest.mark.usefixtures("tools")
def test_what_a_version_before_has_said_settles_nothing_of_the_next(ana: Bearer) -> None:
    """Each was the first choice of its time, under its own key: evidence goes by the key."""
    caller = agent()
    saga = open_saga(Opening(task_id="task", name=""), bearer=caller).saga
    other = AlternativeProposal("money.refund", {"id": "p1", "amount": 7})
    proposal = Proposal("refund-1", "money.refund", {"id": "p9"}, alternatives=(other,))
    case = Case(caller, saga, propose(saga, proposal, bearer=caller).step)
    first = approved(ana, case)
    answer(first, Unknown("cut"))
    resolve(case.step, "did_not_happen", reason="looked", actor="person:ona")
    if case.row.alternative == 0:  # a yes counts for one run, and this one did not happen
        answer(approved(ana, case), FAILED)
    deciding.request_change(ana, case.request.pk, args_digest=case.digest, reason="less")
    send(case, OTHER)
    answer(approved(ana, case), Unknown("cut"))
    answer(first, Done({"id": "old"}))
    OutboxMessage.objects.filter(taken_at=None).update(due_at=ClockTimestamp())
    assert claim() == []
    assert (case.row.state, case.row.alternative) == ("unknown", 0)
    assert_verifies()
