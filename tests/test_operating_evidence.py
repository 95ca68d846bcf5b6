"""What late answers do: nothing that they say is lost, and nothing is doubled by it."""

from __future__ import annotations

import json
from typing import Any
from uuid import UUID

import pytest

from ledger.actions import Action, Trouble
from ledger.models import (
    Attempt,
    EffectClaim,
    Entry,
    IdempotencyRecord,
    ResourceHold,
    Saga,
    Step,
)
from ledger.outcomes import Failed
from ledger.services.cases import cases
from ledger.services.closing import abort
from ledger.services.operating import Pressed, press, resolve, retry
from ledger.services.proposals import AlternativeProposal, Proposal
from ledger.services.proposing import propose
from ledger.services.sweeping import expire_attempt
from tests.deploys import Till, a_till, booking, state_of, step_of
from tests.doubtcast import ONA, due_now, expire, lost_undo, past_the_pivot, stopped_refund, zombie
from tests.shop import assert_verifies
from tests.stage import DONE, REFUND, Stage, a_stage

__all__ = ["a_stage", "a_till"]


def test_a_late_done_keeps_a_step_from_running_once_more(till: Till) -> None:
    """Cases C06, C08: the stale attempt changes no state; what it says is given to the reconciler,
    and the run that was to come is not made."""
    till.release(retries=3)
    saga, taken, outcome = zombie(till)
    resolve(step_of(saga).pk, "did_not_happen", reason="saw nothing", actor=ONA)
    assert step_of(saga).state == "queued"
    till.answer(taken, outcome)
    step = step_of(saga)
    assert (step.state, step.attempts) == ("committed", 1)
    due_now()
    assert till.claim() == []
    told = json.loads(Entry.objects.get(saga_id=saga, kind="step.committed").payload)
    assert told["how"] == "late answer"
    assert till.effects() == 1
    assert_verifies()


def test_a_late_done_counts_when_the_attempt_after_it_is_refused(till: Till) -> None:
    till.release(retries=3)
    saga, taken, outcome = zombie(till)
    resolve(step_of(saga).pk, "did_not_happen", reason="saw nothing", actor=ONA)
    due_now()
    second = till.claim()
    till.answer(taken, outcome)
    assert step_of(saga).state == "executing"
    till.answer(second, Failed("409: booked already"))
    assert step_of(saga).state == "committed"
    assert_verifies()


def test_two_attempts_that_both_say_done_are_shown_to_a_person(till: Till) -> None:
    till.release(retries=3)
    saga, taken, outcome = zombie(till)
    resolve(step_of(saga).pk, "did_not_happen", reason="saw nothing", actor=ONA)
    due_now()
    till.work()
    assert till.effects() == 2
    till.answer(taken, outcome)
    step = step_of(saga)
    assert step.state == "committed"
    assert "Two of its attempts" in step.held_why
    assert cases([step.pk])[step.pk].trouble == Trouble.CONTRADICTED
    press(step.pk, Pressed(Action.ACKNOWLEDGE, "took one out", ONA))
    assert step_of(saga).held_why == ""
    assert press(step.pk, Pressed(Action.ACKNOWLEDGE, "me too", "person:per")).by == ONA
    assert_verifies()


def test_a_late_done_about_a_step_that_was_given_up_is_residue(till: Till) -> None:
    saga, taken, outcome = zombie(till)
    resolve(step_of(saga).pk, "did_not_happen", reason="saw nothing", actor=ONA)
    assert (step_of(saga).state, state_of(saga)) == ("failed", "compensated")
    till.answer(taken, outcome)
    step = step_of(saga)
    assert (step.state, step.residue) == ("failed", True)
    assert "Nobody undoes it" in step.held_why
    assert [offer.action for offer in cases([step.pk])[step.pk].offers] == [Action.ACKNOWLEDGE]
    assert_verifies()


def test_a_late_done_of_the_first_choice_stops_its_alternative(till: Till) -> None:
    """Case C73: the alternative was next, and the first choice has happened after all."""
    saga = till.open()
    way = AlternativeProposal("till.book", {"sum": 3})
    first = Proposal("one", "till.book", {"sum": 1}, alternatives=(way,))
    propose(saga, first, bearer=till.agent)
    taken = till.claim()
    outcome = taken[0].tool.run(taken[0].call)
    expire(taken[0])
    assert step_of(saga).alternative == 0
    till.work()
    assert (step_of(saga).state, step_of(saga).alternative) == ("unknown", 0)
    resolve(step_of(saga).pk, "did_not_happen", reason="saw nothing", actor=ONA)
    assert (step_of(saga).state, step_of(saga).alternative) == ("queued", 1)
    till.answer(taken, outcome)
    step = step_of(saga)
    assert (step.state, step.alternative, till.effects()) == ("committed", 0, 1)
    abort(saga, "undo what happened", bearer=till.agent)
    till.work()
    assert till.lines()[-1] == f"compensate {step.idempotency_key[:8]}"
    assert_verifies()


def test_a_late_done_about_a_version_since_edited_is_a_persons_question(till: Till) -> None:
    saga = past_the_pivot(till)
    till.propose(saga, "one", sum=1)
    taken = till.claim()
    outcome = taken[0].tool.run(taken[0].call)
    expire(taken[0])
    step = step_of(saga)
    resolve(step.pk, "did_not_happen", reason="saw nothing", actor=ONA)
    assert step_of(saga).state == "stuck"
    retry(step.pk, reason="two of them", actor=ONA, args={"sum": 2})
    assert step_of(saga).state == "queued"
    till.answer(taken, outcome)
    now = step_of(saga)
    assert (now.state, state_of(saga)) == ("stuck", "stuck")
    assert "an earlier version of it happened" in now.held_why
    assert till.claim() == []
    assert_verifies()


def test_a_late_done_takes_back_the_effect_that_was_given_free(stage: Stage) -> None:
    """An effect is free again only after an end without it, and there was one after all."""
    _, step, taken = stopped_refund(stage)
    stage.decide(step, "reject")
    assert EffectClaim.objects.filter(released_at=None).count() == 0
    stage.answer(taken, DONE)
    refused = Step.objects.get(pk=step)
    assert (refused.state, refused.residue) == ("rejected", True)
    other = Proposal("again", "payments.refund", REFUND)
    answered = propose(stage.saga(task="another"), other, bearer=stage.agent)
    assert (answered.kind, answered.effect_of) == ("replayed", step)
    assert_verifies()


def test_a_late_answer_about_an_undo_settles_it(till: Till) -> None:
    saga, taken, outcome = lost_undo(till)
    resolve(step_of(saga).pk, "did_not_happen", reason="saw nothing", actor=ONA)
    assert step_of(saga).state == "compensating"
    till.answer(taken, outcome)
    assert (step_of(saga).state, state_of(saga)) == ("compensated", "compensated")
    due_now()
    assert till.claim() == []
    assert sum(line.startswith("compensate") for line in till.lines()) == 1
    assert_verifies()


def test_a_lease_is_judged_again_under_the_lock(till: Till) -> None:
    """Case C06: the answer came between the sweep's list and its turn; it stands."""
    saga = till.open(booking("one"))
    (taken,) = till.claim()
    started = Attempt.objects.get(pk=taken.attempt).started_at
    Attempt.objects.filter(pk=taken.attempt).update(lease_until=started)
    till.answer([taken], taken.tool.run(taken.call))
    assert taken.attempt is not None
    assert not expire_attempt(taken.attempt)
    assert step_of(saga).state == "committed"


def test_leases_that_keep_running_out_end_with_a_person(till: Till, settings: Any) -> None:
    """Case C10: reclaims are counted apart from failures, and have a limit of their own."""
    till.release(retries=100)
    saga = till.open(booking("one"))
    for _ in range(5):
        due_now()
        (taken,) = [one for one in till.claim() if one.attempt]
        expire(taken)
        for _ in range(2):
            due_now()
            for one in till.claim():
                if one.attempt is None:
                    till.answer([one], one.tool.probe(one.call))
        if state_of(saga) == "stuck":
            break
    step = step_of(saga)
    assert (step.state, state_of(saga), step.reclaims) == ("unknown", "stuck", 5)
    assert step.attempts == 5
    assert till.effects() == 0
    assert Saga.objects.get(pk=saga).retries_used == 4


def test_what_nobody_was_to_find_out_is_no_residue_once_it_is_known_not_to_be(till: Till) -> None:
    saga = till.open(booking("zero", sum=1))
    till.work()
    propose(saga, booking("one"), bearer=till.agent)
    taken = till.claim()
    expire(taken[0])
    till.jam()
    resolve(step_of(saga).pk, "end_saga", reason="no time for it", actor=ONA)
    assert (step_of(saga).state, step_of(saga).residue) == ("unknown", True)
    till.answer(taken, Failed("no such customer"))
    due_now()
    till.work()
    assert (step_of(saga).state, step_of(saga).residue) == ("failed", False)
    till.unjam()
    retry(step_of(saga, "zero").pk, reason="it is mended", actor=ONA)
    till.work()
    assert state_of(saga) == "compensated"
    told = json.loads(Entry.objects.get(saga_id=saga, kind="saga.compensated").payload)
    assert told["residue"] == []
    assert_verifies()


def spend(step: UUID, direction: str = "forward") -> None:
    """The record of its key says `executed`, whatever its row says."""
    record = IdempotencyRecord.objects.filter(step=step, direction=direction)
    for state in ("pending", "executed"):
        record.update(state=state)


@pytest.mark.django_db(transaction=True)
def test_a_step_whose_key_is_spent_holds_its_saga_and_no_resource(stage: Stage) -> None:
    """It waits for an operator: the saga says so, and others may use what it would have used."""
    saga = stage.saga()
    step = stage.charge(saga)
    stage.answer(stage.claim(), Failed("503: busy", retryable=True))
    spend(step)
    other = stage.saga("Another order", "another")
    stage.charge(other)
    due_now()
    assert stage.claim() == []
    stage.work()
    assert (step_of(saga, "charge").state, state_of(saga)) == ("stuck", "stuck")
    assert step_of(other, "charge").state == "committed"
    assert not ResourceHold.objects.exists()
    resolve(step, "happened", result={"id": "ch_1"}, reason="It is there.", actor=ONA)
    assert (step_of(saga, "charge").state, state_of(saga)) == ("committed", "running")
    assert_verifies()


@pytest.mark.django_db(transaction=True)
def test_an_undo_whose_key_is_spent_holds_its_saga_and_no_resource(stage: Stage) -> None:
    saga = stage.saga()
    step = stage.charge(saga)
    stage.work()
    abort(saga, "no", bearer=stage.agent)
    stage.answer(stage.claim(), Failed("503: busy", retryable=True))
    spend(step, "compensate")
    due_now()
    assert stage.claim() == []
    assert (step_of(saga, "charge").state, state_of(saga)) == ("stuck", "stuck")
    assert not ResourceHold.objects.exists()
    resolve(step, "happened", reason="It is undone.", actor=ONA)
    assert state_of(saga) == "compensated"
    assert_verifies()
