"""A doubt that a person has ended: only what an attempt says by itself still counts."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from ledger.models import OutboxMessage, Saga, Step
from ledger.outcomes import Done, StillUnknown, Unknown
from ledger.services.operating import resolve
from tests import deploys
from tests.approvalcast import behind_the_ledger
from tests.deploys import Till, a_till, booking, state_of, step_of
from tests.doubtcast import ONA, due_now, expire, stopped_refund
from tests.shop import assert_verifies, states
from tests.stage import Stage, a_stage

__all__ = ["a_stage", "a_till"]
DEAD = Unknown("the line went dead in the end")


@pytest.fixture
def blind(till: Till, monkeypatch: pytest.MonkeyPatch) -> Till:
    """Its target dedupes, and nobody can look there."""
    source = deploys.SOURCE
    monkeypatch.setattr(deploys, "SOURCE", source[: source.index("    def probe")])
    till.release(dedupes=True, dedupes_for_s=3600.0, retries=3)
    return till


def ended(till: Till) -> tuple[UUID, list[Any], list[Any]]:
    """One is done; two is out past its lease, and a person has ended the saga there.

    The saga, the call of two, and the undo of one, which is out.
    """
    saga = till.open(booking("one"))
    till.work()
    till.propose(saga, "two", sum=2)
    out = till.claim()
    expire(out[0])
    resolve(step_of(saga, "two").pk, "end_saga", reason="nobody will know", actor=ONA)
    undo = till.claim()
    assert [one.direction for one in undo] == ["compensate"]
    return saga, out, undo


def rests(till: Till, saga: UUID, undo: list[Any]) -> None:
    """Nothing more leaves, and the saga ends with the doubt as residue."""
    for _ in range(2):
        due_now()
        assert till.claim() == []
    till.answer(undo, Done({}))
    due_now()
    assert till.claim() == []
    two = step_of(saga, "two")
    assert (two.state, two.residue, state_of(saga)) == ("unknown", True, "compensated")
    assert_verifies()


def test_what_says_late_that_it_does_not_know_is_not_sent_again(blind: Till) -> None:
    saga, out, undo = ended(blind)
    blind.answer(out, DEAD)
    rests(blind, saga, undo)


def test_a_late_unknown_about_residue_asks_nobody(stage: Stage) -> None:
    """Nobody could answer: nothing is offered about residue, and no undo waits for it."""
    saga = stage.saga()
    stage.charge(saga)
    stage.work()
    mail = stage.propose(saga, "mail", "mail.send", {"to": "a@b.example", "text": "hi"})
    out = stage.claim()
    expire(out[0])
    resolve(mail, "end_saga", reason="nobody will know", actor=ONA)
    undo = stage.claim()
    stage.answer(out, DEAD)
    due_now()
    assert stage.claim() == []
    stage.answer(undo, Done({}))
    assert Saga.objects.get(pk=saga).state == "compensated"
    assert Step.objects.get(pk=mail).held_why == ""
    assert_verifies()


@pytest.mark.parametrize("words", [1, 2])
def test_looks_that_cannot_tell_ask_nobody_about_residue(till: Till, words: int) -> None:
    saga = till.open(booking("one"))
    till.work()
    till.propose(saga, "two", sum=2)
    out = till.claim()
    expire(out[0])
    due_now()
    looks = till.claim()
    resolve(step_of(saga, "two").pk, "end_saga", reason="nobody will know", actor=ONA)
    undo = [one for one in till.claim() if one.attempt]
    till.answer(out, DEAD)
    for _ in range(words):
        till.answer(looks, StillUnknown("busy"))
    rests(till, saga, undo)


@pytest.mark.parametrize("after_the_end", [False, True])
def test_a_late_done_about_residue_is_known_and_listed(blind: Till, *, after_the_end: bool) -> None:
    saga, out, undo = ended(blind)
    if after_the_end:
        blind.answer(undo, Done({}))
        assert state_of(saga) == "compensated"
    blind.answer(out, Done({"no": "abc"}))
    due_now()
    blind.work()
    if not after_the_end:
        blind.answer(undo, Done({}))
    two = step_of(saga, "two")
    assert (two.state, two.residue, state_of(saga)) == ("committed", True, "compensated")
    assert states(saga)["one"] == "compensated"
    assert_verifies()


def test_a_saga_paused_for_a_new_version_goes_on_when_the_old_one_has_happened(
    stage: Stage,
) -> None:
    saga, step, out = stopped_refund(stage)
    stage.decide(step, "request_change", reason="smaller")
    assert Saga.objects.get(pk=saga).state == "paused"
    stage.answer(out, Done({"id": "re_1"}))
    assert states(saga) == {"refund": "committed"}
    assert Saga.objects.get(pk=saga).state == "running"
    assert_verifies()


@pytest.mark.by_hand
@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("answer", ["happened", "did_not_happen"])
def test_a_saga_paused_over_a_doubt_goes_on_when_a_person_has_answered(
    stage: Stage, answer: str
) -> None:
    """As an earlier release left it: asked for another version of what may have happened."""
    saga, step = stage.unknown_refund()
    OutboxMessage.objects.all().delete()
    with behind_the_ledger() as cursor:
        cursor.execute("UPDATE ledger_step SET state = 'change_requested' WHERE id = %s", [step])
        cursor.execute("UPDATE ledger_saga SET state = 'paused' WHERE id = %s", [saga])
    result = {"result": {"id": "re_1"}} if answer == "happened" else {}
    resolve(step, answer, reason="I looked", actor=ONA, **result)  # type: ignore[arg-type]
    assert Saga.objects.get(pk=saga).state == "running"
