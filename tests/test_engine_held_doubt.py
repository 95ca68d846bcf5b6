"""In doubt, and not sent again: nothing may end it as if it certainly had not happened."""

from __future__ import annotations

import json
from importlib import import_module
from time import sleep
from uuid import UUID

import pytest
from django.db import DatabaseError
from django.db.transaction import atomic

from approvals.services import deciding, expiring
from ledger import errors, storage
from ledger.actions import Action, Trouble
from ledger.bearer import Bearer
from ledger.models import Attempt, Entry
from ledger.outcomes import Done
from ledger.services.cases import cases
from ledger.services.closing import abort
from ledger.services.operating import Pressed, Resolution, press, resolve, retry
from tests.deploys import state_of
from tests.doubtcast import CUT, ONA, due_now, state
from tests.heldcast import (
    RULE,
    a_stage,
    as_earlier_releases_left_it,
    fail_it,
    held_doubt,
    held_undo,
    keeps_its_effect,
    offered,
    row_of,
)
from tests.policycast import under
from tests.shop import assert_verifies
from tests.stage import Stage

__all__ = ["a_stage"]

ANSWERS = {Action.HAPPENED, Action.DID_NOT_HAPPEN, Action.END_SAGA}
CHANGED = {"id": "7", "amount": 3}


def assert_held(saga: UUID, step: UUID) -> None:
    """Unknown, and a person's: with its effect, and nothing to run it."""
    row = row_of(step)
    assert (row.state, state_of(saga), row.residue) == ("unknown", "stuck", False)
    assert "It was to be sent again, to find out, but: " in row.held_why
    assert offered(step) == ANSWERS
    assert keeps_its_effect(step)
    assert_verifies()


def test_a_void_yes_leaves_it_unknown(stage: Stage) -> None:
    saga, step = held_doubt(stage)
    assert_held(saga, step)
    with pytest.raises(errors.AlreadyDecided):
        retry(step, reason="again", actor=ONA)
    with pytest.raises(errors.AlreadyDecided):
        retry(step, reason="another sum", actor=ONA, args=CHANGED)


def test_it_did_not_happen_asks_people_about_the_same_key(stage: Stage) -> None:
    _, step = held_doubt(stage)
    resolve(step, "did_not_happen", reason="it is not there", actor=ONA)
    assert state(step) == "awaiting_approval"
    stage.decide(step)
    stage.answer(stage.claim(), Done({"id": "h1"}))
    assert len(set(Attempt.objects.values_list("idempotency_key", flat=True))) == 1
    assert state(step) == "committed"
    assert_verifies()


def test_an_ended_saga_lists_it_and_keeps_its_effect(stage: Stage) -> None:
    saga, step = held_doubt(stage)
    resolve(step, "end_saga", reason="leave it", actor=ONA)
    assert (state(step), state_of(saga), row_of(step).residue) == ("unknown", "compensated", True)
    assert keeps_its_effect(step)
    assert_verifies()


def test_an_abort_waits_for_the_answer(stage: Stage) -> None:
    saga, step = held_doubt(stage)
    abort(saga, "no more", bearer=stage.agent)
    assert_held(saga, step)
    resolve(step, "happened", result={"id": "h1"}, reason="it is there", actor=ONA)
    stage.work()
    assert (state(step), state_of(saga)) == ("compensated", "compensated")
    assert_verifies()


# -- an undo ----------------------------------------------------------------------------


def test_an_undo_with_a_void_yes_stays_in_doubt(stage: Stage) -> None:
    saga, step = held_undo(stage)
    assert (state(step), state_of(saga)) == ("compensating", "stuck")
    assert cases([step])[step].trouble == Trouble.DOUBT
    assert offered(step) == {Action.HAPPENED, Action.DID_NOT_HAPPEN, Action.SKIP}
    with pytest.raises(errors.AlreadyDecided):
        retry(step, reason="again", actor=ONA)
    resolve(step, "happened", reason="it is gone", actor=ONA)
    assert (state(step), state_of(saga)) == ("compensated", "compensated")
    assert_verifies()


def test_an_undo_that_did_not_happen_is_tried_again(stage: Stage) -> None:
    saga, step = held_undo(stage)
    resolve(step, "did_not_happen", reason="it is still there", actor=ONA)
    is_asked_about_and_undone(stage, saga, step)


def is_asked_about_and_undone(stage: Stage, saga: UUID, step: UUID) -> None:
    assert stage.claim() == []
    assert cases([step])[step].trouble is None
    stage.decide(step)
    stage.answer(stage.claim(), Done(None))
    assert (state(step), state_of(saga)) == ("compensated", "compensated")
    assert_verifies()


def test_a_stuck_undo_of_an_earlier_release_is_answered_for_as_a_doubt(stage: Stage) -> None:
    saga, step = held_undo(stage)
    as_earlier_releases_left_it(step)
    assert offered(step) == {Action.HAPPENED, Action.DID_NOT_HAPPEN, Action.SKIP}
    resolve(step, "did_not_happen", reason="it is still there", actor=ONA)
    said = Entry.objects.get(saga_id=saga, kind="operator.resolved")
    assert json.loads(said.payload)["answer"] == "did_not_happen"
    is_asked_about_and_undone(stage, saga, step)


# -- as earlier releases left them ------------------------------------------------------


@pytest.mark.parametrize("asked", [False, True], ids=["stuck", "with people"])
@pytest.mark.parametrize(
    ("answer", "becomes", "saga_is"),
    [
        ("happened", "committed", "running"),
        ("did_not_happen", "awaiting_approval", "running"),
        ("end_saga", "unknown", "compensated"),
    ],
)
def test_what_an_earlier_release_left_is_answered_for_as_a_doubt(
    stage: Stage, answer: Resolution, becomes: str, saga_is: str, asked: bool
) -> None:
    saga, step = held_doubt(stage)
    as_earlier_releases_left_it(step, asked=asked)
    assert offered(step) == ANSWERS
    result = {"id": "h1"} if answer == "happened" else None
    resolve(step, answer, result=result, reason="looked", actor=ONA)
    assert (state(step), state_of(saga)) == (becomes, saga_is)
    assert row_of(step).residue == (answer == "end_saga")
    assert keeps_its_effect(step)
    assert_verifies()


def test_a_stuck_doubt_of_an_earlier_release_keeps_an_aborted_saga_waiting(stage: Stage) -> None:
    saga, step = held_doubt(stage)
    as_earlier_releases_left_it(step)
    abort(saga, "no more", bearer=stage.agent)
    assert (state(step), state_of(saga)) == ("stuck", "stuck")
    press(step, Pressed(Action.END_SAGA, "leave it", ONA))
    assert (state(step), state_of(saga), row_of(step).residue) == ("unknown", "compensated", True)
    assert_verifies()


@pytest.mark.parametrize("answer", ["reject", "request_change"])
def test_a_no_to_the_sending_is_no_word_about_the_effect(stage: Stage, answer: str) -> None:
    saga, step = held_doubt(stage)
    as_earlier_releases_left_it(step, asked=True)
    stage.decide(step, answer)
    assert_held(saga, step)


def test_silence_is_no_word_about_the_effect(stage: Stage) -> None:
    saga, step = held_doubt(stage)
    with under(RULE.format(name="soon", direction="forward") + 'expires = "1s"'):
        as_earlier_releases_left_it(step, asked=True)
    sleep(1.1)
    assert expiring.sweep() == 1
    assert stage.request(step).state == "expired"
    assert_held(saga, step)


def test_an_abort_takes_it_back_from_people(stage: Stage) -> None:
    saga, step = held_doubt(stage)
    as_earlier_releases_left_it(step, asked=True)
    abort(saga, "no more", bearer=stage.agent)
    assert_held(saga, step)
    assert stage.request(step).state == "cancelled"
    due_now()
    assert stage.claim() == []


def test_a_yes_to_other_arguments_is_refused(stage: Stage) -> None:
    _, step = held_doubt(stage)
    as_earlier_releases_left_it(step, asked=True)
    request = stage.request(step)
    approver = Bearer(user_id=stage.approver.pk, username="olivia")
    with pytest.raises(errors.InvalidArgs, match="may have happened"):
        deciding.approve(
            approver, request.pk, args_digest=request.args_digest, reason="less", args=CHANGED
        )


def test_another_version_that_an_agent_was_asked_for_does_not_run_beside_it(stage: Stage) -> None:
    """The earlier release forgot the doubt when it asked the agent; the upgrade tells it again."""
    saga, step = held_doubt(stage)
    as_earlier_releases_left_it(step, asked=True)
    storage.execute("UPDATE ledger_step SET error = NULL WHERE id = %s", [step])
    stage.decide(step, "request_change")
    assert state(step) == "change_requested"
    upgrade = import_module("ledger.migrations.0018_a_doubt_stays_one")
    assert storage.execute(upgrade.IN_DOUBT, []) == 1
    with pytest.raises(errors.StepMismatch):
        stage.propose(saga, "hold", "orders.hold", CHANGED)
    abort(saga, "no more", bearer=stage.agent)
    assert_held(saga, step)


def test_an_effect_is_not_free_while_a_promise_of_its_step_is_open(stage: Stage) -> None:
    _, step = held_doubt(stage)
    fail_it(step)
    assert state(step) == "failed"
    assert keeps_its_effect(step)
    free = "UPDATE ledger_effectclaim SET released_at = clock_timestamp() WHERE step_id = %s"
    with pytest.raises(DatabaseError, match="a promise of its step is open"), atomic():
        storage.execute(free, [step])


def test_what_is_left_out_after_an_earlier_version_of_it_happened_is_residue(stage: Stage) -> None:
    saga = stage.saga()
    step = stage.propose(saga, "hold", "orders.hold", {"id": "7"})
    stage.decide(step)
    taken = stage.claim()
    stage.answer(taken, CUT)
    resolve(step, "did_not_happen", reason="it is not there", actor=ONA)
    request = stage.request(step)
    approver = Bearer(user_id=stage.approver.pk, username="olivia")
    deciding.approve(approver, request.pk, args_digest=request.args_digest, args=CHANGED)
    stage.answer(taken, Done({"id": "h1"}))
    assert (state(step), state_of(saga)) == ("stuck", "stuck")
    resolve(step, "did_not_happen", reason="leave it out", actor=ONA)
    assert (state(step), state_of(saga), row_of(step).residue) == ("failed", "compensated", True)
    assert keeps_its_effect(step)
    assert_verifies()
