"""A dead letter that is edited is another version: for the gate, and beside what was done."""

from __future__ import annotations

import json
from uuid import UUID

import pytest

from approvals.models import Approval
from ledger import errors
from ledger.models import Entry, Step
from ledger.outcomes import Failed
from ledger.services.operating import retry
from ledger.services.proposals import AlternativeProposal, Proposal
from ledger.services.proposing import propose
from tests.deploys import Till, a_till, booking, step_of
from tests.doubtcast import ONA
from tests.shop import assert_verifies
from tests.stage import DONE, REFUND, Stage, a_stage

__all__ = ["a_stage", "a_till"]


def stuck_refund(stage: Stage) -> tuple[UUID, UUID]:
    """A refund past another pivot that the bank has refused: held by the gate, and stuck."""
    saga = stage.saga()
    first = stage.refund(saga, "first")
    stage.decide(first)
    stage.work()
    step = stage.refund(saga, "second", payment_intent="pi_2")
    stage.decide(step)
    stage.work(Failed("400: amount too large"))
    assert Step.objects.get(pk=step).state == "stuck"
    return saga, step


def test_an_edited_refund_waits_for_people_again_under_its_new_digest(stage: Stage) -> None:
    _, step = stuck_refund(stage)
    before = Approval.objects.get(step_id=step)
    args = REFUND | {"payment_intent": "pi_2", "amount": 100}
    retry(step, reason="the amount was wrong", actor=ONA, args=args)
    row = Step.objects.get(pk=step)
    request = stage.request(step)
    assert row.state == "awaiting_approval"
    assert request.pk != before.pk
    assert (request.args_digest, request.state) == (row.fingerprint, "pending")
    assert row.fingerprint != before.args_digest
    assert stage.claim() == []
    stage.decide(step)
    (taken,) = stage.claim()
    assert taken.call.args["amount"] == 100
    stage.answer([taken], DONE)
    assert Step.objects.get(pk=step).state == "committed"
    assert_verifies()


def test_an_edit_cannot_make_it_another_effect(stage: Stage) -> None:
    _, step = stuck_refund(stage)
    with pytest.raises(errors.InvalidArgs, match="another effect"):
        retry(step, reason="other payment", actor=ONA, args=REFUND | {"payment_intent": "pi_9"})
    assert Step.objects.get(pk=step).state == "stuck"


def test_a_refund_tried_again_needs_a_new_yes(stage: Stage) -> None:
    _, step = stuck_refund(stage)
    retry(step, reason="the limit was raised", actor=ONA)
    assert Step.objects.get(pk=step).state == "awaiting_approval"
    assert stage.claim() == []


def test_an_alternative_can_be_edited_and_its_first_choice_stays_as_it_was(till: Till) -> None:
    till.release(tier="pivot")
    saga = till.open(booking("pivot"))
    till.work()
    till.release()
    way = AlternativeProposal("till.book", {"sum": 3, "refuse": "the night"})
    first = Proposal("one", "till.book", {"sum": 1, "refuse": "lunch"}, alternatives=(way,))
    propose(saga, first, bearer=till.agent)
    till.work()
    step = step_of(saga)
    assert (step.state, step.alternative) == ("stuck", 1)
    retry(step.pk, reason="by day", actor=ONA, args={"sum": 3})
    till.work()
    done = step_of(saga)
    assert (done.state, done.args["sum"], done.alternatives[0]["args_text"]) == (
        "committed",
        1,
        '{"sum":3}',
    )
    told = json.loads(Entry.objects.get(saga_id=saga, kind="step.revised").payload)
    assert told["alternative"] == 1
    assert_verifies()


def test_a_step_that_an_alternative_has_done_already_is_asked_about(till: Till) -> None:
    """Its twin is what the alternative ran, not what was chosen first."""
    saga = till.open()
    way = AlternativeProposal("till.book", {"sum": 3})
    first = Proposal("one", "till.book", {"sum": 1, "refuse": "lunch"}, alternatives=(way,))
    propose(saga, first, bearer=till.agent)
    till.work()
    assert (step_of(saga).state, till.effects()) == ("committed", 1)
    twin = till.propose(saga, "two", sum=3)
    row = Step.objects.get(pk=twin)
    assert (row.state, row.duplicate_of_id) == ("awaiting_approval", step_of(saga).pk)
    other = till.propose(saga, "three", sum=4)
    assert Step.objects.get(pk=other).state != "awaiting_approval"


def test_an_alternative_that_another_step_has_done_meanwhile_is_not_taken(till: Till) -> None:
    saga = till.open()
    way = AlternativeProposal("till.book", {"sum": 3})
    first = Proposal("one", "till.book", {"sum": 1, "refuse": "lunch"}, alternatives=(way,))
    propose(saga, first, bearer=till.agent)
    (taken,) = till.claim()
    till.propose(saga, "two", sum=3)
    assert step_of(saga, "two").state == "waiting"
    till.answer([taken], taken.tool.run(taken.call))
    assert step_of(saga).state == "failed"
    assert "step 'two' has done just that" in step_of(saga).error["detail"]
    assert till.effects() == 0
