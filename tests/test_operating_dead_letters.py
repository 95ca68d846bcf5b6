"""Dead letters: tries used up, forward and on the way back, and each way out of them."""

from __future__ import annotations

import json
from typing import Any
from uuid import UUID

import pytest
from django.db import connection

from ledger import errors
from ledger.actions import Action, Trouble
from ledger.models import Attempt, Entry, IdempotencyRecord, OutboxMessage, Step
from ledger.models.fields import ClockTimestamp
from ledger.outcomes import Done, Failed
from ledger.services.cases import cases
from ledger.services.closing import abort, complete
from ledger.services.operating import Pressed, press, resolve, retry
from ledger.services.proposals import Proposal
from ledger.services.proposing import propose
from tests.deploys import Till, a_till, booking, state_of, step_of
from tests.doubtcast import ONA
from tests.shop import assert_verifies
from tests.stage import Stage, a_stage

__all__ = ["a_stage", "a_till"]


def offered(step: UUID) -> set[Action]:
    return {offer.action for offer in cases([step])[step].offers}


def stuck_after_pivot(till: Till, *more: Proposal) -> tuple[UUID, Step]:
    """A saga past its pivot whose next step the target has refused for good."""
    till.release(tier="pivot")
    saga = till.open(booking("pivot"))
    till.work()
    till.release()
    till.propose(saga, "one", sum=100, refuse="lunch")
    for another in more:
        propose(saga, another, bearer=till.agent)
    till.work()
    step = step_of(saga)
    assert (step.state, state_of(saga)) == ("stuck", "stuck")
    return saga, step


def test_a_dead_letter_offers_what_is_possible_past_the_pivot(till: Till) -> None:
    _, step = stuck_after_pivot(till)
    assert offered(step.pk) == {
        Action.RETRY,
        Action.HAPPENED,
        Action.DID_NOT_HAPPEN,
        Action.EDIT,
        Action.END_SAGA,
    }


def test_a_dead_letter_tried_again_runs_once_however_often_it_is_pressed(till: Till) -> None:
    saga, step = stuck_after_pivot(till)
    asked = cases([step.pk])[step.pk].question
    retry(step.pk, reason="lunch is over", actor=ONA, question=asked)
    for question in (asked, ""):
        again = retry(step.pk, reason="again", actor="person:per", question=question)
        assert again.replayed
    (taken,) = till.claim()
    till.answer([taken], Done({"no": "7"}))
    assert (step_of(saga).state, state_of(saga)) == ("committed", "running")
    assert Attempt.objects.filter(step=step).count() == 2
    assert_verifies()


def test_a_dead_letter_is_edited_and_goes_on_under_a_new_key(till: Till) -> None:
    saga, step = stuck_after_pivot(till, booking("two", sum=5))
    retry(step.pk, reason="at the other till", actor=ONA, args={"sum": 100})
    till.work()
    assert [step_of(saga, name).state for name in ("one", "two")] == ["committed", "committed"]
    assert IdempotencyRecord.objects.filter(step=step).count() == 2
    assert till.effects() == 3
    assert_verifies()


def test_a_dead_letter_done_by_hand_goes_on_and_is_undone_by_its_result(till: Till) -> None:
    saga, step = stuck_after_pivot(till, booking("two", sum=5))
    resolve(step.pk, "happened", result={"no": "9"}, reason="did it in the shop", actor=ONA)
    till.work()
    assert step_of(saga, "two").state == "committed"
    complete(saga, bearer=till.agent)
    assert state_of(saga) == "completed"
    assert_verifies()


def test_a_dead_letter_left_out_lets_the_saga_go_on(till: Till) -> None:
    saga, step = stuck_after_pivot(till, booking("two", sum=5))
    resolve(step.pk, "did_not_happen", reason="not needed", actor=ONA)
    till.work()
    assert [step_of(saga, name).state for name in ("one", "two")] == ["failed", "committed"]
    assert_verifies()


def test_a_dead_letter_is_skipped_on_the_way_back_and_the_ones_below_are_undone(till: Till) -> None:
    """Cases I1, I2, C60: a failing undo keeps its place, is tried a bounded number of times, and
    neither turns the saga anew nor lets it end silently."""
    saga = till.open(booking("one"), booking("two", sum=5))
    till.work()
    till.jam()
    abort(saga, "no", bearer=till.agent)
    till.work()
    two = step_of(saga, "two")
    assert (two.state, state_of(saga)) == ("stuck", "stuck")
    assert step_of(saga).state == "committed"
    assert offered(two.pk) == {Action.RETRY, Action.HAPPENED, Action.SKIP}
    kinds = list(Entry.objects.filter(saga_id=saga).values_list("kind", flat=True))
    assert kinds.count("saga.compensating") == 1
    assert Attempt.objects.filter(step=two, direction="compensate").count() == 1
    till.unjam()
    press(two.pk, Pressed(Action.SKIP, "they may keep it", ONA))
    till.work()
    assert (step_of(saga, "two").state, step_of(saga, "two").residue) == ("committed", True)
    assert (step_of(saga).state, state_of(saga)) == ("compensated", "compensated")
    assert_verifies()


def test_an_undo_tried_again_is_given_its_whole_count_of_tries(till: Till) -> None:
    saga = till.open(booking("one"))
    till.work()
    till.jam()
    abort(saga, "no", bearer=till.agent)
    till.work()
    step = step_of(saga)
    for _ in range(2):
        retry(step.pk, reason="once more", actor=ONA)
        till.work()
        assert step_of(saga).state == "stuck"
    till.unjam()
    retry(step.pk, reason="oiled", actor=ONA)
    till.work()
    assert (step_of(saga).state, state_of(saga)) == ("compensated", "compensated")
    assert_verifies()


def test_a_correction_that_is_stuck_is_done_by_hand(till: Till) -> None:
    till.release(tier="non_compensatable")
    saga = till.open(booking("one"))
    till.work()
    till.jam()
    abort(saga, "no", bearer=till.agent)
    till.work()
    step = step_of(saga)
    labels = {offer.action: offer.label for offer in cases([step.pk])[step.pk].offers}
    assert labels[Action.HAPPENED] == "I have done the correction by hand"
    resolve(step.pk, "happened", reason="wrote them a letter", actor=ONA)
    assert (step_of(saga).state, state_of(saga)) == ("corrected", "compensated")
    assert_verifies()


def test_a_try_that_waits_for_its_time_starts_now(till: Till) -> None:
    till.release(retries=5)
    saga = till.open(booking("one"))
    till.answer(till.claim(), Failed("busy", retryable=True, retry_after_s=600))
    step = step_of(saga)
    assert till.claim() == []
    assert cases([step.pk])[step.pk].trouble == Trouble.DELAYED
    retry(step.pk, reason="they are back", actor=ONA)
    assert retry(step.pk, reason="they are back", actor="person:per").replayed
    till.work()
    assert (step_of(saga).state, till.effects()) == ("committed", 1)


def test_tampered_arguments_cannot_be_tried_again(stage: Stage) -> None:
    """What was changed behind the ledger is a person's business: a try would be refused again."""
    step = stage.charge(stage.saga())
    with connection.cursor() as cursor:
        cursor.execute("SET CONSTRAINTS ALL IMMEDIATE")
        cursor.execute("ALTER TABLE ledger_step DISABLE TRIGGER ledger_step_frozen")
        cursor.execute("UPDATE ledger_step SET args_text = replace(args_text, 'cus', 'sus')")
        cursor.execute("ALTER TABLE ledger_step ENABLE TRIGGER ledger_step_frozen")
        cursor.execute("SET CONSTRAINTS ALL DEFERRED")
    assert stage.claim() == []
    assert offered(step) == {Action.HAPPENED, Action.DID_NOT_HAPPEN}


def test_pressing_what_is_not_offered_is_refused_with_the_state(stage: Stage) -> None:
    """Case E8: nothing waits for an answer, so an answer is refused with the fact."""
    saga = stage.saga()
    step = stage.charge(saga)
    for action in Action:
        with pytest.raises(errors.AlreadyDecided, match="is queued") as refused:
            press(step, Pressed(action, "because", ONA, args={"a": 1}))
        assert refused.value.extra["state"] == "queued"
        assert refused.value.extra["decided"]["kind"] == "step.proposed"
    stage.work()
    with pytest.raises(errors.AlreadyDecided, match="is committed"):
        resolve(step, "did_not_happen", reason="no trace", actor=ONA)
    late = Entry.objects.filter(saga_id=saga, kind="operator.late")
    assert {json.loads(entry.payload)["said"] for entry in late} == {
        "happened",
        "did_not_happen",
        "end_saga",
    }
    assert OutboxMessage.objects.filter(taken_at=None, due_at__lte=ClockTimestamp()).count() == 0


def test_the_same_late_word_is_kept_once(stage: Stage) -> None:
    saga = stage.saga()
    step: Any = stage.charge(saga)
    stage.work()
    for _ in range(3):
        with pytest.raises(errors.AlreadyDecided):
            resolve(step, "did_not_happen", reason="no trace", actor=ONA)
    assert Entry.objects.filter(saga_id=saga, kind="operator.late").count() == 1
