"""Late answers and the records of keys: what happened is spent, whatever was said before."""

from __future__ import annotations

import json
from typing import Any
from uuid import UUID

from ledger.models import Attempt, IdempotencyRecord
from ledger.outcomes import Failed
from ledger.services.operating import resolve
from ledger.services.proposals import AlternativeProposal, Proposal
from ledger.services.proposing import propose
from tests.deploys import Till, a_till, booking, step_of
from tests.doubtcast import CUT, ONA, due_now, lost_undo, zombie
from tests.shop import assert_verifies

__all__ = ["a_till"]


def record_of(saga: UUID, key: str = "") -> tuple[str, Any]:
    """State and stored response of a key, by default that of the step's first choice."""
    found = IdempotencyRecord.objects.get(key=key or step_of(saga).idempotency_key)
    return found.state, json.loads(found.response or "null")


def did_not_happen(saga: UUID) -> None:
    resolve(step_of(saga).pk, "did_not_happen", reason="saw nothing", actor=ONA)


def test_a_key_is_spent_when_a_late_answer_says_so_and_the_next_attempt_was_refused(
    till: Till,
) -> None:
    """The attempt failed, and that stays told of it; its key has done its work all the same."""
    till.release(retries=3)
    saga, taken, outcome = zombie(till)
    did_not_happen(saga)
    due_now()
    second = till.claim()
    till.answer(taken, outcome)
    till.answer(second, Failed("409: booked already"))
    state, response = record_of(saga)
    assert (state, response["outcome"], response["result"]) == ("executed", "done", outcome.result)
    tries = Attempt.objects.filter(step__saga=saga).order_by("fence")
    assert [one.state for one in tries] == ["unknown", "failed"]
    assert tries[1].outcome["error"] == "409: booked already"
    again = propose(saga, booking("one"), bearer=till.agent)
    assert again.kind == "replayed"
    assert json.loads(step_of(saga).result_text) == outcome.result
    assert_verifies()


def test_a_key_is_spent_when_a_late_answer_keeps_its_step_from_running(till: Till) -> None:
    till.release(retries=3)
    saga, taken, outcome = zombie(till)
    did_not_happen(saga)
    assert record_of(saga)[0] == "failed"
    till.answer(taken, outcome)
    assert record_of(saga)[0] == "executed"
    assert record_of(saga)[1]["result"] == outcome.result
    assert_verifies()


def test_the_key_that_a_late_answer_spends_is_that_of_the_choice_that_happened(till: Till) -> None:
    saga = till.open()
    ways = (AlternativeProposal("till.book", {"sum": 3}),)
    first = Proposal("one", "till.book", {"sum": 1}, alternatives=ways)
    propose(saga, first, bearer=till.agent)
    taken = till.claim()
    outcome = taken[0].tool.run(taken[0].call)
    till.answer(taken, CUT)
    did_not_happen(saga)
    due_now()
    other = till.claim()
    assert other[0].call.idempotency_key != taken[0].call.idempotency_key
    till.answer(taken, outcome)
    till.answer(other, Failed("409: booked already"))
    step = step_of(saga)
    assert (step.state, step.alternative) == ("committed", 0)
    assert record_of(saga, taken[0].call.idempotency_key)[0] == "executed"
    assert record_of(saga, other[0].call.idempotency_key)[0] == "failed"
    assert_verifies()


def test_the_key_of_what_was_given_up_is_spent_when_it_has_happened(till: Till) -> None:
    saga, taken, outcome = zombie(till)
    did_not_happen(saga)
    till.answer(taken, outcome)
    step = step_of(saga)
    assert (step.state, step.residue, record_of(saga)[0]) == ("failed", True, "executed")
    assert_verifies()


def test_the_key_of_an_undo_is_spent_by_a_late_answer_too(till: Till) -> None:
    saga, taken, outcome = lost_undo(till)
    did_not_happen(saga)
    key = taken[0].call.idempotency_key
    assert record_of(saga, key)[0] == "failed"
    till.answer(taken, outcome)
    assert step_of(saga).state == "compensated"
    assert record_of(saga, key)[0] == "executed"
    assert_verifies()


def test_an_undo_that_is_refused_after_a_late_done_is_done(till: Till) -> None:
    saga, taken, outcome = lost_undo(till)
    did_not_happen(saga)
    due_now()
    second = till.claim()
    till.answer(taken, outcome)
    till.answer(second, Failed("404: no such booking"))
    assert step_of(saga).state == "compensated"
    assert record_of(saga, taken[0].call.idempotency_key)[0] == "executed"
    assert_verifies()
