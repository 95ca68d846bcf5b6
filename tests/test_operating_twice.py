"""Two attempts that both say "done": in whatever order they are heard, a person is told."""

from __future__ import annotations

import json
from typing import Any
from uuid import UUID

import pytest

from ledger.actions import Action, Trouble
from ledger.models import Entry, Step
from ledger.outcomes import Done, Failed, NotApplied
from ledger.queries.pages_attention import waiting_count
from ledger.services.assignments import Assignment
from ledger.services.cases import cases
from ledger.services.closing import abort
from ledger.services.operating import Pressed, press, resolve, retry
from ledger.services.proposals import AlternativeProposal, Proposal
from ledger.services.proposing import propose
from tests.deploys import Till, a_till, state_of, step_of
from tests.doubtcast import CUT, ONA, due_now, expire, lost_undo, past_the_pivot, zombie
from tests.shop import assert_verifies

__all__ = ["a_till"]
# As workers write them: inside a caller's transaction no outcome is written unread.
pytestmark = pytest.mark.django_db(transaction=True)

TWO = "Two of its attempts say that they were carried out."


def tried_again(till: Till, saga: UUID) -> list[Assignment]:
    """A person says that nothing happened, and the next attempt is out."""
    resolve(step_of(saga).pk, "did_not_happen", reason="saw nothing", actor=ONA)
    due_now()
    return till.claim()


def cut_with_another_choice(till: Till) -> tuple[UUID, list[Assignment], Any]:
    """The answer of the first choice was cut off; what it said."""
    saga = till.open()
    way = AlternativeProposal("till.book", {"sum": 3})
    proposal = Proposal("one", "till.book", {"sum": 1}, alternatives=(way,))
    propose(saga, proposal, bearer=till.agent)
    first = till.claim()
    outcome = first[0].tool.run(first[0].call)
    till.answer(first, CUT)
    return saga, first, outcome


def really(till: Till, taken: list[Assignment]) -> None:
    """The call is made, and its answer comes in time."""
    till.answer(taken, taken[0].tool.run(taken[0].call))


def told(saga: UUID, kind: str = "step.contradicted") -> list[dict[str, Any]]:
    found = Entry.objects.filter(saga_id=saga, kind=kind).order_by("seq")
    return [json.loads(entry.payload) for entry in found]


def assert_shown(saga: UUID, words: str = TWO) -> Step:
    """A person is shown it, and nothing but their word ends that."""
    step = step_of(saga)
    assert len(told(saga)) == 1
    assert words in step.held_why
    assert cases([step.pk])[step.pk].trouble == Trouble.CONTRADICTED
    assert waiting_count(10) == 1, "the menu counts what Attention lists"
    assert_verifies()
    return step


def test_the_late_done_comes_before_the_second_done(till: Till) -> None:
    till.release(retries=3)
    saga, first, outcome = zombie(till)
    second = tried_again(till, saga)
    till.answer(first, outcome)
    assert told(saga) == []
    really(till, second)
    step = assert_shown(saga)
    assert (step.state, till.effects()) == ("committed", 2)


def test_both_come_in_one_batch(till: Till) -> None:
    till.release(retries=3)
    saga, first, outcome = zombie(till)
    second = tried_again(till, saga)
    till.answer([*second, *first], outcome)
    assert_shown(saga)


def test_both_come_late(till: Till) -> None:
    till.release(retries=3)
    saga, first, outcome = zombie(till)
    second = tried_again(till, saga)
    other = second[0].tool.run(second[0].call)
    expire(second[0])
    till.answer(first, outcome)
    till.answer(second, other)
    due_now()
    till.work()
    assert_shown(saga)


@pytest.mark.parametrize("late_first", [True, False])
def test_at_a_target_that_dedupes_the_two_are_one(till: Till, late_first: bool) -> None:
    till.release(retries=3, dedupes=True, dedupes_for_s=60.0)
    saga, first, outcome = zombie(till)
    second = tried_again(till, saga)
    for taken in (first, second) if late_first else (second, first):
        till.answer(taken, outcome)
    assert step_of(saga).state == "committed"
    assert told(saga) == []
    assert step_of(saga).held_why == ""


@pytest.mark.parametrize("late_first", [True, False])
def test_two_choices_have_two_keys_and_no_target_dedupes_those(
    till: Till, late_first: bool
) -> None:
    till.release(dedupes=True, dedupes_for_s=60.0)
    saga, first, outcome = cut_with_another_choice(till)
    second = tried_again(till, saga)
    assert second[0].call.args == {"sum": 3}
    if late_first:
        till.answer(first, outcome)
    really(till, second)
    if not late_first:
        till.answer(first, outcome)
    step = assert_shown(saga)
    assert (step.state, step.alternative, till.effects()) == ("committed", 1, 2)


def test_the_late_done_of_a_choice_before_the_one_that_a_look_has_found(till: Till) -> None:
    saga, first, outcome = cut_with_another_choice(till)
    second = tried_again(till, saga)
    second[0].tool.run(second[0].call)
    till.answer(first, outcome)
    till.answer(second, CUT)
    due_now()
    till.work()
    assert step_of(saga).state == "committed"
    assert_shown(saga)


@pytest.mark.parametrize("aborted_first", [True, False])
def test_it_is_still_shown_once_one_of_them_was_undone(till: Till, aborted_first: bool) -> None:
    """The undo took back one; the other is out there until a person has looked."""
    till.release(retries=3)
    saga, first, outcome = zombie(till)
    second = tried_again(till, saga)
    till.answer(first, outcome)
    if aborted_first:
        abort(saga, "no more", bearer=till.agent)
    really(till, second)
    if not aborted_first:
        abort(saga, "no more", bearer=till.agent)
    till.work()
    assert state_of(saga) == "compensated"
    step = assert_shown(saga)
    assert step.state == "compensated"
    press(step.pk, Pressed(Action.ACKNOWLEDGE, "took the other out", ONA))
    assert step_of(saga).held_why == ""


def test_what_a_person_has_seen_to_is_not_shown_again_by_the_undo(till: Till) -> None:
    till.release(retries=3)
    saga, first, outcome = zombie(till)
    second = tried_again(till, saga)
    till.answer(first, outcome)
    really(till, second)
    press(step_of(saga).pk, Pressed(Action.ACKNOWLEDGE, "took one out", ONA))
    abort(saga, "no more", bearer=till.agent)
    till.work()
    assert (step_of(saga).state, step_of(saga).held_why) == ("compensated", "")


@pytest.mark.parametrize("late_first", [True, False])
def test_two_undos_that_both_say_done_are_told_too(till: Till, late_first: bool) -> None:
    """A refund taken back twice is money as well."""
    saga, first, outcome = lost_undo(till)
    second = tried_again(till, saga)
    for taken in (first, second) if late_first else (second, first):
        till.answer(taken, outcome)
    step = assert_shown(saga, "Two of its undos say that they were carried out.")
    assert step.state == "compensated"


# -- what is known before the next attempt ----------------------------------------------------


def assert_settled_by_evidence(till: Till, saga: UUID) -> None:
    step = step_of(saga)
    assert (step.state, step.attempts, till.effects()) == ("committed", 1, 1)
    assert told(saga, "step.committed")[0]["how"] == "late answer"
    due_now()
    assert till.claim() == []
    assert_verifies()


def test_what_has_said_done_is_not_run_again_on_a_persons_word(till: Till) -> None:
    """Before the look that would have found it, somebody saw nothing at the target."""
    till.release(retries=3)
    saga, first, outcome = zombie(till)
    till.answer(first, outcome)
    assert step_of(saga).state == "unknown"
    resolve(step_of(saga).pk, "did_not_happen", reason="saw nothing", actor=ONA)
    assert_settled_by_evidence(till, saga)


def test_what_has_said_done_is_not_run_again_because_looks_saw_nothing(till: Till) -> None:
    till.release(retries=3)
    saga, first, outcome = zombie(till)
    looks = []
    for _ in range(2):
        due_now()
        looks = till.claim()
        assert [one.attempt for one in looks] == [None]
        if not told(saga, "step.looked"):
            till.answer(looks, NotApplied())
    till.answer(first, outcome)
    till.answer(looks, NotApplied())
    assert_settled_by_evidence(till, saga)


def test_an_undo_that_has_said_done_is_not_made_again_on_a_persons_word(till: Till) -> None:
    saga, first, outcome = lost_undo(till)
    till.answer(first, outcome)
    resolve(step_of(saga).pk, "did_not_happen", reason="saw nothing", actor=ONA)
    assert (step_of(saga).state, state_of(saga)) == ("compensated", "compensated")
    assert_verifies()


def test_the_done_of_a_version_before_is_told_whenever_it_came(till: Till) -> None:
    """It came while the next version was out, which was then tried once more: that one's claim
    has read the entry, and still its plain outcome is not written unread."""
    saga = past_the_pivot(till)
    till.propose(saga, "one", sum=1)
    first = till.claim()
    outcome = first[0].tool.run(first[0].call)
    expire(first[0])
    step = step_of(saga)
    resolve(step.pk, "did_not_happen", reason="saw nothing", actor=ONA)
    retry(step.pk, reason="two of them", actor=ONA, args={"sum": 2})
    second = till.claim()
    till.answer(first, outcome)
    till.answer(second, Failed("busy", retryable=False))
    retry(step.pk, reason="try it", actor=ONA)
    due_now()
    third = till.claim()
    assert third[0].attempt is not None
    till.answer(third, Done({"no": "again"}))
    assert_shown(saga)
