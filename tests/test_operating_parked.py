"""No code here may run it: it waits with the reason and what to do, and is never thrown away."""

from __future__ import annotations

import json
from typing import Any
from uuid import UUID

import pytest

from approvals.models import Approval
from ledger import errors
from ledger.actions import Action, Trouble
from ledger.models import Entry, IdempotencyRecord, OutboxMessage, Step
from ledger.models.fields import ClockTimestamp
from ledger.outcomes import Failed, Unknown
from ledger.queries.pages_attention import attention, waiting_count
from ledger.services.cases import Case, cases
from ledger.services.closing import abort
from ledger.services.operating import Pressed, press, resolve, retry
from ledger.services.proposals import Proposal
from ledger.services.proposing import propose
from tests.deploys import SCHEMA, Till, a_till, booking, state_of, step_of
from tests.doubtcast import ONA, expire
from tests.shop import assert_verifies

__all__ = ["a_till"]


def case_of(step: Step) -> Case:
    return cases([step.pk])[step.pk]


def offered(step: Step) -> set[Action]:
    return {offer.action for offer in case_of(step).offers}


def confirm(step: Step, digest: str, actor: str = ONA, question: str = "") -> Any:
    pressed = Pressed(Action.CONFIRM, "read the diff", actor, question, tool_digest=digest)
    return press(step.pk, pressed)


def look_again() -> None:
    """The few seconds are over after which a parked message is looked at again."""
    OutboxMessage.objects.filter(taken_at=None).update(due_at=ClockTimestamp())


def parked(till: Till, saga: UUID, step_id: str = "one") -> Step:
    till.work()
    step = step_of(saga, step_id)
    assert case_of(step).trouble == Trouble.PARKED
    return step


def test_a_parked_step_is_counted_in_the_menu(till: Till) -> None:
    parked_saga = till.open(booking("one"))
    till.withdraw()
    parked(till, parked_saga)
    assert (len(attention().cases), waiting_count(10), waiting_count(1)) == (1, 1, 1)


def test_a_step_whose_tool_is_not_here_waits_and_runs_when_it_is(till: Till) -> None:
    """Cases C14, C55: an unknown tool parks the step; nothing is failed or thrown away."""
    saga = till.open(booking("one"))
    till.withdraw()
    step = parked(till, saga)
    assert (step.state, state_of(saga)) == ("queued", "running")
    assert "not registered" in step.held_why
    assert "by hand" in step.held_why
    assert offered(step) == {Action.HAPPENED, Action.DID_NOT_HAPPEN}
    till.release()
    look_again()
    till.work()
    assert (step_of(saga).state, step_of(saga).held_why, till.effects()) == ("committed", "", 1)
    assert_verifies()


def test_changed_code_runs_only_after_a_yes_to_exactly_that_code(till: Till) -> None:
    """Case C111: a change of code is shown with what to do, and confirmed by its digest."""
    saga = till.open(booking("one"))
    seen = till.release("2")
    step = parked(till, saga)
    assert "version 1 then, 2 now" in step.held_why
    assert case_of(step).confirms == seen
    asked = case_of(step).question
    newest = till.release("3")
    with pytest.raises(errors.StaleDigest) as stale:
        confirm(step, seen, question=asked)
    assert stale.value.extra["tool_digest"] == newest
    assert till.effects() == 0
    confirm(step, newest, question=asked)
    assert confirm(step, newest, "person:per", asked).by == ONA
    till.work()
    assert step_of(saga).state == "committed"
    assert [line.split()[-1] for line in till.lines()] == ["3"]
    told = Entry.objects.get(saga_id=saga, kind="operator.confirmed")
    assert json.loads(told.payload)["tool_digest"] == newest
    assert_verifies()


def test_a_yes_to_changed_code_is_none_to_the_change_after_it(till: Till) -> None:
    saga = till.open(booking("one"))
    digest = till.release("2")
    confirm(parked(till, saga), digest)
    till.release("3")
    step = parked(till, saga)
    assert till.effects() == 0
    assert Action.CONFIRM in offered(step)


def test_the_same_version_with_other_code_is_seen_as_changed(till: Till) -> None:
    saga = till.open(booking("one"))
    till.release("1", remark="A till whose author forgot to raise its version.")
    assert "the code differs" in parked(till, saga).held_why


def test_arguments_that_do_not_fit_the_new_schema_cannot_be_confirmed(till: Till) -> None:
    """The changed schema: the reason names the fault, and what helps is another version."""
    saga = till.open(booking("one"))
    schema = SCHEMA | {"required": ["sum", "currency"]}
    schema["properties"] = SCHEMA["properties"] | {"currency": {"type": "string"}}  # type: ignore[operator]
    digest = till.release("2", schema=schema)
    step = parked(till, saga)
    assert "do not fit its new schema" in step.held_why
    assert "/currency" in step.held_why
    assert Action.CONFIRM not in offered(step)
    with pytest.raises(errors.AlreadyDecided):
        confirm(step, digest)
    retry(step.pk, reason="it wants a currency", actor=ONA, args={"sum": 100, "currency": "eur"})
    till.work()
    done = step_of(saga)
    assert (done.state, done.revision, done.tool_version_id) == ("committed", 2, digest)
    assert till.effects() == 1
    assert_verifies()


def test_an_edited_version_supersedes_the_old_one_and_both_are_kept(till: Till) -> None:
    """Case A14 on the way: the agent's old version is recognised, and runs no more."""
    saga = till.open(booking("one"))
    till.release("2")
    step = parked(till, saga)
    old = (step.fingerprint, step.idempotency_key)
    asked = case_of(step).question
    edited = {"sum": 250}
    retry(step.pk, reason="a cent was missing", actor=ONA, args=edited, question=asked)
    again = retry(step.pk, reason="me too", actor="person:per", args=edited, question=asked)
    assert again.by == ONA
    till.work()
    done = step_of(saga)
    assert (done.fingerprint, done.idempotency_key) != old
    assert done.former[0]["fingerprint"] == old[0]
    assert json.loads(done.former[0]["args_text"]) == {"sum": 100}
    told = json.loads(Entry.objects.get(saga_id=saga, kind="step.revised").payload)
    assert (told["args"], told["was"]["args"]) == ({"sum": 250}, {"sum": 100})
    with pytest.raises(errors.StepMismatch):
        till.propose(saga, "one", sum=100)
    twin = Step.objects.get(pk=till.propose(saga, "two", sum=100))
    assert (twin.state, twin.duplicate_of_id) == ("awaiting_approval", done.pk)
    assert till.effects() == 1
    assert_verifies()


def test_a_step_that_was_parked_runs_once_when_it_is_edited(till: Till) -> None:
    saga = till.open(booking("one"))
    till.release("2")
    retry(parked(till, saga).pk, reason="a cent was missing", actor=ONA, args={"sum": 250})
    look_again()
    assert len(till.claim()) == 1
    assert not OutboxMessage.objects.filter(taken_at=None).exists()


@pytest.mark.parametrize(
    ("args", "said"),
    [({"sum": 100}, "has now"), ({"sum": "much"}, "/sum"), ({"sums": 1}, "/sum"), ([], "object")],
)
def test_an_edited_version_that_cannot_be_right_changes_nothing(
    till: Till, args: Any, said: str
) -> None:
    saga = till.open(booking("one"))
    till.release("2")
    step = parked(till, saga)
    with pytest.raises(errors.InvalidArgs, match=said):
        retry(step.pk, reason="try this", actor=ONA, args=args)
    assert step_of(saga).revision == 1
    assert not Entry.objects.filter(saga_id=saga, kind="operator.edited").exists()


def test_a_parked_step_can_be_done_by_hand_and_its_key_is_spent(till: Till) -> None:
    saga = till.open(booking("one"), booking("two", sum=7))
    till.withdraw()
    step = parked(till, saga)
    with pytest.raises(errors.InvalidArgs, match="/result/no"):
        resolve(step.pk, "happened", result={}, reason="booked it", actor=ONA)
    with pytest.raises(errors.InvalidArgs, match="/result"):
        resolve(step.pk, "happened", reason="booked it", actor=ONA)
    resolve(step.pk, "happened", result={"no": "by hand"}, reason="booked it", actor=ONA)
    assert IdempotencyRecord.objects.get(key=step.idempotency_key).state == "executed"
    till.release()
    look_again()
    till.work()
    assert [step_of(saga, name).state for name in ("one", "two")] == ["committed", "committed"]
    assert till.effects() == 1
    abort(saga, "undo by the result that the person gave", bearer=till.agent)
    till.work()
    assert till.lines()[-1] == "compensate by hand"
    assert state_of(saga) == "compensated"
    assert_verifies()


def test_a_parked_step_can_be_left_out_and_the_saga_turns_back(till: Till) -> None:
    saga = till.open(booking("one"), booking("two", sum=7))
    till.work()
    till.propose(saga, "three", sum=9)
    till.release("2", remark="unlike", retries=1)
    step = parked(till, saga, "three")
    resolve(step.pk, "did_not_happen", reason="not needed any more", actor=ONA)
    assert step_of(saga, "three").state == "failed"
    assert state_of(saga) == "compensating"
    assert_verifies()


def test_an_undo_under_changed_code_waits_and_may_be_confirmed_or_skipped(till: Till) -> None:
    saga = till.open(booking("one"), booking("two", sum=7))
    till.work()
    digest = till.release("2")
    abort(saga, "no", bearer=till.agent)
    two = parked(till, saga, "two")
    assert offered(two) == {Action.CONFIRM, Action.HAPPENED, Action.SKIP}
    press(two.pk, Pressed(Action.SKIP, "the customer keeps it", ONA))
    left = step_of(saga, "two")
    assert (left.state, left.residue) == ("committed", True)
    one = parked(till, saga, "one")
    confirm(one, digest)
    till.work()
    assert (step_of(saga).state, state_of(saga)) == ("compensated", "compensated")
    assert sum(line.startswith("compensate") for line in till.lines()) == 1
    with pytest.raises(errors.AlreadyDecided, match="ona said 'skip'"):
        press(two.pk, Pressed(Action.RETRY, "no, undo it", "person:per"))
    assert_verifies()


def test_an_undo_that_is_out_is_nobodys_where_its_tool_is_not(till: Till) -> None:
    """The process that is asked may lack the tool; the worker that undoes has it."""
    saga = till.open(booking("one"))
    till.work()
    abort(saga, "no", bearer=till.agent)
    (taken,) = till.claim()
    till.withdraw()
    assert (case_of(step_of(saga)).trouble, offered(step_of(saga))) == (None, set())
    till.answer([taken], Failed("the till is jammed"))
    assert offered(step_of(saga)) == {Action.HAPPENED, Action.SKIP}


def test_a_look_that_no_code_may_make_is_told_and_confirmed(till: Till) -> None:
    """In doubt and parked at once: the doubt is answered, or the new code may look."""
    saga = till.open(booking("one"))
    (taken,) = till.claim()
    taken.tool.run(taken.call)
    till.release("2")
    till.answer([taken], Unknown("the line went dead"))
    look_again()
    till.work()
    step = step_of(saga)
    assert case_of(step).trouble == Trouble.DOUBT
    assert offered(step) >= {Action.CONFIRM, Action.HAPPENED, Action.DID_NOT_HAPPEN}
    assert Action.RETRY not in offered(step)
    confirm(step, case_of(step).confirms)
    till.work()
    assert (step_of(saga).state, till.effects()) == ("committed", 1)
    assert_verifies()


def test_a_sweeper_without_the_tool_leaves_the_finding_out_to_who_has_it(till: Till) -> None:
    """Another release's relay, as during a deploy: that it cannot look says nothing of others."""
    saga = till.open(booking("one"))
    (taken,) = till.claim()
    taken.tool.run(taken.call)
    till.withdraw()
    expire(taken)
    assert (state_of(saga), step_of(saga).state) == ("running", "unknown")
    assert till.claim() == []
    assert case_of(step_of(saga)).trouble is not None
    till.release()
    look_again()
    till.work()
    assert step_of(saga).state == "committed"
    assert till.effects() == 1
    assert_verifies()


def test_what_is_held_for_people_goes_through_the_gate_again_when_it_is_edited(till: Till) -> None:
    saga = till.open(booking("one"))
    till.work()
    twin = propose(saga, Proposal("two", "till.book", {"sum": 100}), bearer=till.agent).step
    first = Approval.objects.get(step_id=twin)
    assert Step.objects.get(pk=twin).state == "awaiting_approval"
    with pytest.raises(errors.AlreadyDecided):
        retry(twin, reason="edit it", actor=ONA, args={"sum": 5})
    assert first.state == "pending"
