"""Finding out: when a look counts, and how long looking goes on."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest
from django.db import Error, connection, transaction

from ledger import errors
from ledger.actions import Trouble
from ledger.backoff import LOOKS, look_delay_s
from ledger.models import Attempt, Entry, OutboxMessage, Step
from ledger.models.fields import ClockTimestamp
from ledger.outcomes import Applied, NotApplied, StillUnknown
from ledger.services import sweeping
from ledger.services.cases import cases
from ledger.services.closing import abort
from ledger.services.operating import resolve, retry
from tests.deploys import Till, a_till, booking, state_of, step_of
from tests.doubtcast import CUT, ONA, ago, due_now, look, looks_of, state
from tests.shop import assert_verifies
from tests.stage import Stage, a_stage

__all__ = ["a_stage", "a_till"]


def test_looks_double_to_a_minute_and_then_slow_down_to_an_hour() -> None:
    delays = [look_delay_s(looks) for looks in range(1, LOOKS + 8)]
    assert delays[:8] == [0.5, 1, 2, 4, 8, 16, 32, 60]
    assert sum(delays[: LOOKS - 1]) < 240
    assert delays[LOOKS - 1 : LOOKS + 1] == [120, 240]
    assert delays[-1] == 3600
    assert look_delay_s(10_000) == 3600
    with pytest.raises(ValueError, match="from 1"):
        look_delay_s(0)


def test_a_negative_before_the_target_has_settled_does_not_count(stage: Stage) -> None:
    """Case P17: the tool's settle_s is 30 s after the intent."""
    _, step = stage.unknown_refund()
    for _ in range(4):
        look(stage, NotApplied())
    assert state(step) == "unknown"
    ago(step, 31)
    look(stage, NotApplied())
    assert state(step) == "unknown"
    look(stage, NotApplied())
    assert state(step) == "awaiting_approval"
    assert_verifies()


def test_a_look_is_as_old_as_its_beginning(stage: Stage) -> None:
    """One that began before the target had settled and took long saw nothing that counts."""
    _, step = stage.unknown_refund()
    due_now()
    taken = stage.claim()
    # Meanwhile the settling is over: the intent is 31 s old, and the look began just after it.
    ago(step, 31)
    OutboxMessage.objects.filter(pk=taken[0].message).update(
        taken_at=ClockTimestamp() - timedelta(seconds=30)
    )
    began = OutboxMessage.objects.get(pk=taken[0].message).taken_at
    stage.answer([replace(taken[0], looks_since=began)], NotApplied())
    look(stage, NotApplied())
    assert state(step) == "unknown"
    look(stage, NotApplied())
    assert state(step) == "awaiting_approval"


def test_a_look_that_was_taken_anew_by_another_worker_says_nothing(till: Till) -> None:
    """Case P17: what the first saw is older than the settle time that the second has waited for."""
    till.release(settle_s=5.0)
    saga = till.open(booking("one"))
    till.answer(till.claim(), CUT)
    due_now()
    first = till.claim()
    OutboxMessage.objects.filter(pk=first[0].message).update(lease_until=ClockTimestamp())
    assert sweeping.return_lost_looks() == 1
    ago(step_of(saga).pk, 60)
    second = till.claim()
    assert [one.message for one in second] == [one.message for one in first]
    till.answer(first, NotApplied())
    assert looks_of(step_of(saga).pk) == []
    till.answer(second, NotApplied())
    (waits,) = OutboxMessage.objects.filter(step=step_of(saga), taken_at=None)
    assert (waits.kind, waits.negatives) == ("probe", 1)


def test_negatives_are_spaced_apart(stage: Stage, settings: Any) -> None:
    settings.SAGA_PROBE_APART_S = 5.0
    _, step = stage.unknown_refund()
    ago(step, 60)
    look(stage, NotApplied())
    waits = OutboxMessage.objects.get(step=step, taken_at=None)
    assert waits.negatives == 1
    left = waits.due_at - waits.created_at
    assert timedelta(seconds=4.9) < left < timedelta(seconds=5.1)


def test_an_operator_who_hurries_a_look_does_not_bring_two_negatives_together(stage: Stage) -> None:
    _, step = stage.unknown_refund()
    ago(step, 60)
    look(stage, NotApplied())
    retry(step, reason="the bank is back", actor=ONA)
    again = retry(step, reason="the bank is back", actor="person:per")
    assert again.replayed
    taken = stage.claim()
    stage.answer(taken, NotApplied())
    assert state(step) == "unknown"
    look(stage, NotApplied())
    assert state(step) == "awaiting_approval"


def test_looking_goes_on_after_a_person_was_asked(stage: Stage) -> None:
    """Case C75: a probe that cannot tell has a deadline, after which it is a person's business."""
    saga, step = stage.unknown_refund()
    for _ in range(LOOKS):
        assert state_of(saga) == "running"
        look(stage, StillUnknown("503"))
    row = Step.objects.get(pk=step)
    assert (state_of(saga), row.state) == ("stuck", "unknown")
    assert "Looked 10 times" in row.held_why
    look(stage, StillUnknown("503"))
    assert "Looked 11 times" in Step.objects.get(pk=step).held_why
    asked = cases([step])[step].question
    look(stage, Applied({"id": "re_1"}))
    assert (state_of(saga), state(step)) == ("running", "committed")
    with pytest.raises(errors.AlreadyDecided, match="found by the probe") as late:
        resolve(step, "did_not_happen", reason="no trace", actor=ONA, question=asked)
    assert late.value.extra["decided"]["kind"] == "step.committed"
    assert_verifies()


def test_an_answer_ends_the_looking_and_a_look_that_is_out_counts_no_more(stage: Stage) -> None:
    _, step = stage.unknown_refund()
    due_now()
    out = stage.claim()
    resolve(step, "did_not_happen", reason="asked the bank", actor=ONA)
    assert state(step) == "awaiting_approval"
    stage.answer(out, Applied({"id": "re_1"}))
    assert state(step) == "awaiting_approval"
    due_now()
    assert stage.claim() == []


def test_the_question_is_another_one_once_it_was_tried_anew(stage: Stage) -> None:
    """Two doubts of one step: who looked at the first has not answered the second."""
    _, step = stage.unknown_refund()
    first = cases([step])[step].question
    resolve(step, "did_not_happen", reason="no trace", actor=ONA, question=first)
    stage.decide(step)
    stage.answer(stage.claim(), CUT)
    assert (state(step), cases([step])[step].trouble) == ("unknown", Trouble.DOUBT)
    assert (
        resolve(step, "did_not_happen", reason="no trace", actor="person:per", question=first).by
        == ONA
    )
    with pytest.raises(errors.AlreadyDecided):
        resolve(step, "happened", reason="seen", actor="person:per", question=first)
    assert state(step) == "unknown"


def test_an_undo_in_doubt_is_looked_for_and_answered(till: Till) -> None:
    """Case I4, C72: an undo in doubt is resolved before the one below it starts."""
    saga = till.open(booking("one"), booking("two", sum=2))
    till.work()
    abort(saga, "no", bearer=till.agent)
    till.answer(till.claim(), CUT)
    two = step_of(saga, "two")
    assert (two.state, state_of(saga)) == ("compensating", "compensating")
    assert cases([two.pk])[two.pk].trouble == Trouble.DOUBT
    assert step_of(saga).state == "committed"
    resolve(two.pk, "did_not_happen", reason="it is still booked", actor=ONA)
    till.work()
    assert (step_of(saga).state, state_of(saga)) == ("compensated", "compensated")
    undone = [line for line in till.lines() if line.startswith("compensate")]
    assert len(undone) == 2
    assert_verifies()


def test_an_unknown_step_is_not_undone_before_it_is_resolved(till: Till) -> None:
    """Cases C72, I4, C65: an intent without an outcome is no reason to undo, and none to skip."""
    saga = till.open(booking("one"))
    taken = till.claim()
    taken[0].tool.run(taken[0].call)
    till.answer(taken, CUT)
    abort(saga, "no", bearer=till.agent)
    assert (state_of(saga), step_of(saga).state) == ("compensating", "unknown")
    assert not Attempt.objects.filter(direction="compensate").exists()
    due_now()
    till.work()
    assert step_of(saga).state == "compensated"
    assert [line.split()[0] for line in till.lines()] == ["booked", "compensate"]
    assert_verifies()


def test_a_step_that_never_had_an_intent_is_a_recorded_no_op_and_its_slot_is_taken(
    till: Till,
) -> None:
    """Case C66: whoever is late finds the slot taken, by the database itself."""
    saga = till.open(booking("one"), booking("two", sum=2))
    queued, waiting = step_of(saga), step_of(saga, "two")
    abort(saga, "no", bearer=till.agent)
    assert state_of(saga) == "compensated"
    for step in (queued, waiting):
        now = Step.objects.get(pk=step.pk)
        assert (now.state, now.fence) == ("cancelled", step.fence + 1)
        told = Entry.objects.get(saga_id=saga, step_id=step.step_id, kind="step.cancelled")
        assert json.loads(told.payload)["undo"] == "nothing to undo"
        for fence in (step.fence + 1, step.fence + 2):
            with pytest.raises(Error, match="no forward attempt"), transaction.atomic():
                forge_attempt(now, fence)
    assert till.claim() == []
    assert_verifies()


def forge_attempt(step: Step, fence: int) -> None:
    """The intent of a worker that never heard of the turn."""
    Attempt.objects.create(
        step=step,
        direction="forward",
        fence=fence,
        token=uuid4(),
        idempotency_key=step.idempotency_key,
        shift_id=uuid4(),
        lease_until=ClockTimestamp(),
    )


def test_a_step_that_is_committed_takes_no_second_attempt_by_hand(till: Till) -> None:
    saga = till.open(booking("one"))
    till.work()
    step = step_of(saga)
    with pytest.raises(Error, match="is committed"), transaction.atomic():
        forge_attempt(step, step.fence + 1)
    with connection.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM ledger_attempt")
        assert cursor.fetchone() == (1,)
