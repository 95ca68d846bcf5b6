"""Going forward against a real target: in order, once, and told truthfully."""

from __future__ import annotations

import json
import threading
from uuid import UUID, uuid4

import pytest
from django.db import connection

from ledger import errors
from ledger.models import Attempt, Entry, IdempotencyRecord, Saga, Step
from ledger.services.claiming import claim
from ledger.services.closing import abort, complete
from ledger.services.freezing import freeze, lift
from ledger.services.proposals import AlternativeProposal, Answer, Proposal
from ledger.services.recording import Finished, record
from ledger.services.shifts import ring_row
from tests.shop import Shop, assert_verifies, broken, customer, kinds, states, work, work_saga


def test_steps_run_in_order_and_the_saga_completes(shop: Shop) -> None:
    saga = shop.open(customer("one", "a@example.com"), customer("two", "b@example.com"))
    complete(saga, bearer=shop.bearer)
    work_saga(saga, "completed")
    assert states(saga) == {"one": "committed", "two": "committed"}
    for step in Step.objects.filter(saga_id=saga):
        assert shop.is_there(step_result(step)["id"])
    order = kinds(saga, "attempt.started", "step.committed")
    assert order == [
        ("attempt.started", "one"),
        ("step.committed", "one"),
        ("attempt.started", "two"),
        ("step.committed", "two"),
    ]
    assert_verifies()


def step_result(step: Step) -> dict[str, str]:
    assert step.result_text is not None
    parsed: dict[str, str] = json.loads(step.result_text)
    return parsed


def test_asking_again_answers_from_the_ledger_and_calls_nothing(shop: Shop) -> None:
    charge = shop.charge()
    saga = shop.open()
    args = {"charge": charge, "amount": 700}
    first = shop.propose(saga, "refund", "payments.settle", args=args)
    assert first.kind == "accepted"
    assert shop.propose(saga, "refund", "payments.settle", args=args).kind == "in_flight"
    work(lambda: states(saga)["refund"] == "committed")
    again = shop.propose(saga, "refund", "payments.settle", args=args)
    assert (again.kind, again.step, again.effect_of) == ("replayed", first.step, None)
    work(lambda: True)
    assert len(shop.refunds(charge)) == 1
    assert kinds(saga, "step.replayed") == [("step.replayed", "refund")]
    record = IdempotencyRecord.objects.get(step_id=first.step)
    assert record.state == "executed"


def test_reworded_args_are_refused_with_both_digests_and_change_nothing(shop: Shop) -> None:
    saga = shop.open()
    charge = shop.charge()
    shop.propose(saga, "refund", "payments.settle", args={"charge": charge, "amount": 700})
    before = Entry.objects.filter(saga_id=saga).count()
    with pytest.raises(errors.StepMismatch) as refused:
        shop.propose(saga, "refund", "payments.settle", args={"charge": charge, "amount": 800})
    extra = refused.value.extra
    assert extra["differing_paths"] == ["/amount"]
    assert extra["recorded"]["args_digest"] != extra["submitted"]["args_digest"]
    assert Entry.objects.filter(saga_id=saga).count() == before


def test_one_is_one_however_it_is_written(shop: Shop) -> None:
    """Case C86: 1, 1.0 and 1e0 are the same number and so the same step."""
    saga = shop.open()
    charge = shop.charge()
    shop.propose(saga, "refund", "payments.settle", args={"charge": charge, "amount": 1})
    again = shop.propose(saga, "refund", "payments.settle", args={"charge": charge, "amount": 1.0})
    assert again.kind == "in_flight"


def test_another_saga_that_wants_the_same_effect_gets_the_first_answer(shop: Shop) -> None:
    charge = shop.charge()
    args = {"charge": charge, "amount": 700}
    first_saga, second_saga = shop.open(), shop.open()
    first = shop.propose(first_saga, "refund", "payments.settle", args=args)
    waiting = shop.propose(second_saga, "other", "payments.settle", args=args)
    assert (waiting.kind, waiting.effect_of) == ("in_flight", first.step)
    work(lambda: states(first_saga)["refund"] == "committed")
    answered = shop.propose(second_saga, "other", "payments.settle", args=args)
    assert (answered.kind, answered.effect_of) == ("replayed", first.step)
    assert states(second_saga) == {}
    assert len(shop.refunds(charge)) == 1
    with pytest.raises(errors.EffectClaimed) as refused:
        shop.propose(second_saga, "more", "payments.settle", args={"charge": charge, "amount": 701})
    assert refused.value.extra["effect_of"] == str(first.step)


def test_an_effect_key_is_free_again_only_when_its_effect_was_undone(shop: Shop) -> None:
    email = f"{uuid4()}@example.com"
    saga = shop.open(Proposal("one", "crm.exclusive", {"email": email}))
    work(lambda: states(saga)["one"] == "committed")
    other = shop.open()
    assert shop.propose(other, "x", "crm.exclusive", args={"email": email}).kind == "replayed"
    abort(saga, "changed my mind", bearer=shop.bearer)
    work_saga(saga, "compensated")
    assert shop.propose(other, "x", "crm.exclusive", args={"email": email}).kind == "accepted"


def test_a_twin_without_an_effect_key_waits_for_a_person(shop: Shop) -> None:
    """Case H8: a model that lost its memory asks under a new step_id."""
    saga = shop.open(customer("one"))
    answer = shop.propose(saga, "again", "crm.customer", args={"email": "ada@example.com"})
    step = Step.objects.get(pk=answer.step)
    assert step.state == "awaiting_approval"
    assert step.duplicate_of_id is not None


def test_an_effect_key_that_only_looks_the_same_waits_for_a_person(shop: Shop) -> None:
    name = str(uuid4())
    shop.open(Proposal("one", "crm.exclusive", {"email": f"paypal-{name}@example.com"}))
    cyrillic = f"p\u0430ypal-{name}@example.com"
    saga = shop.open(Proposal("two", "crm.exclusive", {"email": cyrillic}))
    assert states(saga) == {"two": "awaiting_approval"}


def test_a_deliberate_repeat_needs_a_reason_and_a_person_and_happens_once(shop: Shop) -> None:
    charge = shop.charge()
    args = {"charge": charge, "amount": 100}
    saga = shop.open()
    first = shop.propose(saga, "refund", "payments.settle", args=args)
    work(lambda: states(saga)["refund"] == "committed")
    with pytest.raises(errors.InvalidArgs, match="reason"):
        shop.propose(saga, "second", "payments.settle", args=args, repeat_of=first.step)
    more = {"args": args, "repeat_of": first.step, "reason": "the customer returned two items"}
    second = shop.propose(saga, "second", "payments.settle", **more)
    assert states(saga)["second"] == "awaiting_approval"
    third = shop.propose(saga, "third", "payments.settle", **more)
    assert (third.kind, third.effect_of) == ("in_flight", second.step)


def refund_again(shop: Shop, saga: UUID, step_id: str, first: UUID, charge: str) -> Answer:
    args = {"charge": charge, "amount": 100}
    more = {"args": args, "repeat_of": first, "reason": "the customer returned two items"}
    return shop.propose(saga, step_id, "payments.settle", **more)


def test_a_repeat_is_one_of_the_same_effect(shop: Shop) -> None:
    saga, other = shop.open(), shop.charge()
    args = {"charge": shop.charge(), "amount": 100}
    first = shop.propose(saga, "refund", "payments.settle", args=args)
    with pytest.raises(errors.InvalidArgs, match="that is no repeat"):
        refund_again(shop, saga, "second", first.step, other)
    repeat = refund_again(shop, saga, "second", first.step, args["charge"])
    again = refund_again(shop, saga, "third", repeat.step, args["charge"])
    assert again.kind == "accepted"  # a repeat of the repeat, of the same effect


def test_who_wants_an_effect_that_only_a_repeat_holds_is_asked_about(shop: Shop) -> None:
    """The first gave its claim back, undone or failed; that of the repeat stands."""
    email = f"{uuid4()}@example.com"
    saga, other = shop.open(), shop.open()
    first = shop.propose(saga, "one", "crm.exclusive", args={"email": email})
    work(lambda: states(saga)["one"] == "committed")
    more = {"args": {"email": email}, "repeat_of": first.step, "reason": "one more"}
    repeat = shop.propose(other, "more", "crm.exclusive", **more)
    abort(saga, "changed my mind", bearer=shop.bearer)
    work_saga(saga, "compensated")
    third = shop.open()
    asked = shop.propose(third, "x", "crm.exclusive", args={"email": email})
    assert states(third) == {"x": "awaiting_approval"}
    assert Step.objects.get(pk=asked.step).duplicate_of_id == repeat.step


def test_fifty_threads_submit_the_same_step_and_one_effect_exists(shop: Shop) -> None:
    """Case C20: parallel submits, not only sequential ones, are one."""
    charge = shop.charge()
    saga = shop.open()
    start = threading.Barrier(50)
    answers: list[str] = []

    def submit() -> None:
        start.wait()
        args = {"charge": charge, "amount": 500}
        answers.append(shop.propose(saga, "refund", "payments.settle", args=args).kind)
        connection.close()

    threads = [threading.Thread(target=submit) for _ in range(50)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(answers) == ["accepted"] + ["in_flight"] * 49
    work(lambda: states(saga)["refund"] == "committed")
    assert len(shop.refunds(charge)) == 1
    assert kinds(saga, "step.proposed") == [("step.proposed", "refund")]


def test_attempts_on_one_resource_never_run_at_the_same_time(shop: Shop) -> None:
    desk = str(uuid4())
    for name in ("ada", "bob"):
        shop.open(Proposal("one", "crm.desk", {"email": f"{name}@example.com", "desk": desk}))
    shift = ring_row()
    (first,) = claim(shift, 10)
    assert claim(shift, 10) == []
    record(shift, [Finished(first, first.tool.run(first.call))])
    (second,) = claim(shift, 10)
    assert second.saga != first.saga
    record(shift, [Finished(second, second.tool.run(second.call))])
    assert_verifies()


def test_a_frozen_tool_sends_nothing_until_the_freeze_is_lifted(shop: Shop) -> None:
    stop = freeze("tool", "crm.customer", reason="incident 7", actor="person:ona")
    saga = shop.open(customer("one"))
    assert claim(ring_row(), 10) == []
    assert lift(stop.pk, actor="person:ona")
    assert not lift(stop.pk, actor="person:ona")
    work(lambda: states(saga)["one"] == "committed")


def test_an_alternative_runs_only_after_the_one_before_it_surely_failed(shop: Shop) -> None:
    saga = shop.open(
        Proposal(
            "one",
            "crm.broken",
            {"id": "cus_of_nobody"},
            alternatives=(AlternativeProposal("crm.customer", {"email": "b@example.com"}),),
        )
    )
    work(lambda: states(saga)["one"] == "committed")
    step = Step.objects.get(saga_id=saga)
    assert step.alternative == 1
    assert shop.is_there(step_result(step)["id"])
    abort(saga, "undo the alternative, not the first choice", bearer=shop.bearer)
    work_saga(saga, "compensated")
    assert not shop.is_there(step_result(step)["id"])
    assert_verifies()


def instead(email: str) -> Proposal:
    """A step that surely fails, and claims an effect only with its alternative."""
    way = AlternativeProposal("crm.exclusive", {"email": email})
    return Proposal("instead", "crm.broken", {"id": "cus_of_nobody"}, alternatives=(way,))


def test_an_alternative_does_not_repeat_an_effect_that_another_step_holds(shop: Shop) -> None:
    first = shop.open(Proposal("one", "crm.exclusive", {"email": "held@example.com"}))
    work(lambda: states(first)["one"] == "committed")
    saga = shop.open(instead("held@example.com"))
    work_saga(saga, "compensated")
    step = Step.objects.get(saga_id=saga)
    assert (step.state, Attempt.objects.filter(step=step).count()) == ("failed", 1)
    assert "already claimed by step 'one'" in step.error["detail"]
    assert_verifies()


def test_an_alternative_that_a_step_of_its_saga_has_done_is_asked_about(shop: Shop) -> None:
    saga = shop.open(customer("one", "twin@example.com"))
    work(lambda: states(saga)["one"] == "committed")
    way = AlternativeProposal("crm.customer", {"email": "twin@example.com"})
    shop.propose(saga, "two", "crm.broken", args={"id": "cus_of_nobody"}, alternatives=(way,))
    work(lambda: states(saga)["two"] == "awaiting_approval")
    assert_verifies()


def test_an_alternative_holds_its_effect_from_then_on(shop: Shop) -> None:
    saga = shop.open(instead("taken@example.com"))
    work(lambda: states(saga)["instead"] == "committed")
    with pytest.raises(errors.EffectClaimed):
        shop.propose(shop.open(), "again", "crm.exclusive", args={"email": "taken@example.com"})
    abort(saga, "undone, so its effect is free again", bearer=shop.bearer)
    work_saga(saga, "compensated")
    last = shop.open(Proposal("one", "crm.exclusive", {"email": "taken@example.com"}))
    work(lambda: states(last)["one"] == "committed")
    assert_verifies()


def test_a_saga_that_ended_takes_no_more_steps(shop: Shop) -> None:
    saga = shop.open(customer("one"))
    complete(saga, bearer=shop.bearer)
    work_saga(saga, "completed")
    with pytest.raises(errors.SagaEnded):
        shop.propose(saga, "two", "crm.customer", args={"email": "c@example.com"})


def test_the_same_task_is_the_same_saga_and_another_one_is_refused(shop: Shop) -> None:
    saga = shop.open(customer("one"), task_id="task")
    assert shop.open(customer("one"), task_id="task") == saga
    with pytest.raises(errors.TaskMismatch):
        shop.open(broken("one"), task_id="task")
    assert Saga.objects.count() == 1
