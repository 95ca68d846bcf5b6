"""An operator's answer counts once, for the question that was seen, and is told to all others."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Any
from uuid import UUID

import pytest
from django.db import IntegrityError, connection, transaction

from ledger import errors
from ledger.models import Entry, OutboxMessage, Saga, Step
from ledger.models.fields import ClockTimestamp
from ledger.services.cases import cases
from ledger.services.claiming import claim
from ledger.services.closing import abort
from ledger.services.operating import Answered, resolve
from ledger.services.proposals import Proposal
from ledger.services.recording import Finished, record
from ledger.services.shifts import ring_row
from ledger.services.unit import Unit
from tests.shop import Shop, assert_verifies, states, work, work_saga
from tests.stage import Stage, a_stage

__all__ = ["a_stage"]

ONA, PER = "person:ona", "person:per"


def question(step: UUID) -> str:
    return cases([step])[step].question


def told(step: UUID, kind: str) -> list[dict[str, Any]]:
    row = Step.objects.get(pk=step)
    found = Entry.objects.filter(saga_id=row.saga_id, step_id=row.step_id, kind=kind)
    return [json.loads(entry.payload) for entry in found.order_by("seq")]


def test_the_same_answer_again_is_a_replay_and_names_who_gave_it(stage: Stage) -> None:
    _, step = stage.unknown_refund()
    asked = question(step)
    first = resolve(
        step, "happened", result={"id": "re_1"}, reason="seen", actor=ONA, question=asked
    )
    assert not first.replayed
    for again in (asked, ""):
        second = resolve(
            step, "happened", result={"id": "re_1"}, reason="me too", actor=PER, question=again
        )
        assert (second.replayed, second.by) == (True, ONA)
    assert len(told(step, "operator.resolved")) == 1
    assert_verifies()


@pytest.mark.parametrize(
    ("answer", "result"), [("did_not_happen", None), ("end_saga", None), ("happened", {"id": "x"})]
)
def test_another_answer_is_told_who_answered_what_when_and_why(
    stage: Stage, answer: Any, result: Any
) -> None:
    _, step = stage.unknown_refund()
    asked = question(step)
    resolve(step, "happened", result={"id": "re_1"}, reason="seen at the bank", actor=ONA)
    for seen in (asked, ""):
        with pytest.raises(errors.AlreadyDecided, match="ona said 'happened'") as refused:
            resolve(step, answer, result=result, reason="no trace", actor=PER, question=seen)
        fact = refused.value.extra["decided"]
        assert (fact["by"], fact["answer"], fact["reason"]) == (ONA, "happened", "seen at the bank")
        assert fact["at"].endswith("Z")
    assert Step.objects.get(pk=step).state == "committed"
    assert told(step, "operator.late")[0]["said"] == answer
    assert_verifies()


def at_once(*acts: Callable[[], Any]) -> list[Any]:
    """What each act came to, all begun at the same moment, each on a connection of its own."""
    barrier = threading.Barrier(len(acts))
    came: list[Any] = [None] * len(acts)

    def run(index: int, act: Callable[[], Any]) -> None:
        try:
            barrier.wait(10)
            came[index] = act()
        except errors.SagaError as error:
            came[index] = error
        finally:
            connection.close()

    threads = [threading.Thread(target=run, args=found) for found in enumerate(acts)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    return came


def blind(shop: Shop) -> tuple[UUID, UUID]:
    """A step whose answer was cut off after the effect, and that nobody can look up."""
    shop.wire.cut_next("POST", "/v1/customers")
    saga = shop.open(Proposal("one", "crm.blind", {"email": "blind@example.com"}))
    work_saga(saga, "stuck")
    return saga, Step.objects.get(saga_id=saga).pk


def is_committed(saga: UUID) -> bool:
    return states(saga) == {"one": "committed"}


def test_of_many_people_who_answer_at_once_one_answers(shop: Shop) -> None:
    """The same question to eight people, half of whom say the opposite: one entry, one state."""
    for _ in range(3):
        saga, step = blind(shop)
        asked = question(step)

        def say(index: int, step: UUID = step, asked: str = asked) -> Any:
            answer: Any = "happened" if index % 2 else "did_not_happen"
            who = f"person:p{index}"
            return resolve(step, answer, reason="I looked", actor=who, question=asked)

        came = at_once(*(partial(say, index) for index in range(8)))
        (entry,) = told(step, "operator.resolved")
        winners = [one for one in came if isinstance(one, Answered) and not one.replayed]
        replays = [one for one in came if isinstance(one, Answered) and one.replayed]
        refused = [one for one in came if isinstance(one, errors.AlreadyDecided)]
        assert (len(winners), len(replays), len(refused)) == (1, 3, 4)
        assert all(one.extra["decided"]["answer"] == entry["answer"] for one in refused)
        assert len(told(step, "operator.late")) == 4
        # A step that did not happen runs again: done before the next one's answer is cut off.
        work(partial(is_committed, saga))
    assert_verifies()


@pytest.mark.parametrize("answer", ["happened", "did_not_happen", "end_saga"])
def test_a_saga_that_is_aborted_while_it_waits_for_a_person_waits_still(
    shop: Shop, answer: Any
) -> None:
    """It needs an operator, so it is `stuck` and is found as that, and one answer ends it."""
    saga, step = blind(shop)
    abort(saga, "the agent changed its mind", bearer=shop.bearer)
    found = Saga.objects.get(pk=saga)
    assert (found.state, found.ended_backward_why != "") == ("stuck", True)
    (there,) = shop.customers(Step.objects.get(pk=step).idempotency_key)
    result = {"id": there["id"]} if answer == "happened" else None
    resolve(step, answer, result=result, reason="I looked", actor=ONA, question=question(step))
    work_saga(saga, "compensated")
    assert_verifies()


def test_an_answer_and_the_reconciler_at_once_are_one_conclusion(shop: Shop) -> None:
    """The probe's sighting is being written while a person says the same, or the opposite."""
    answers: list[Any] = ["happened", "did_not_happen"] * 3
    for said in answers:
        charge = shop.charge()
        shop.wire.cut_next("POST", "/v1/refunds")
        args = {"charge": charge, "amount": 100}
        saga = shop.open(Proposal("refund", "payments.settle", args))
        shift = ring_row()
        (run,) = claim(shift, 1)
        record(shift, [Finished(run, run.tool.run(run.call))])
        assert states(saga) == {"refund": "unknown"}
        step = Step.objects.get(saga_id=saga).pk
        time.sleep(0.3)
        (look,) = claim(shift, 1)
        seen = look.tool.probe(look.call)
        asked = question(step)
        came = at_once(
            lambda shift=shift, look=look, seen=seen: record(shift, [Finished(look, seen)]),
            lambda step=step, said=said, asked=asked: resolve(
                step, said, reason="I looked", actor=ONA, question=asked
            ),
        )
        row = Step.objects.get(pk=step)
        committed = Entry.objects.filter(saga_id=saga, kind="step.committed").count()
        if isinstance(came[1], errors.AlreadyDecided):
            assert (row.state, committed) == ("committed", 1)
            assert told(step, "operator.resolved") == []
        elif said == "happened":
            assert (row.state, committed) == ("committed", 1)
        else:
            assert (row.state, committed) == ("queued", 0)
        assert len(shop.refunds(charge)) == 1
        # The next round claims its own step, not the run that a wrong answer has asked for.
        OutboxMessage.objects.filter(taken_at=None).update(taken_at=ClockTimestamp())
    assert_verifies()


def test_the_database_itself_takes_one_answer_a_question(stage: Stage) -> None:
    """Whoever writes the entry: a second one for the same question is refused by the index."""
    saga, step = stage.unknown_refund()
    resolve(step, "happened", result={"id": "re_1"}, reason="seen", actor=ONA)
    (first,) = told(step, "operator.resolved")
    unit = Unit(PER)
    unit.lock([saga])
    facts = {"answer": "end_saga", "reason": "no", "question": first["question"]}
    unit.entry(unit.sagas[saga], "operator.resolved", Step.objects.get(pk=step).step_id, **facts)
    with pytest.raises(IntegrityError, match="ledger_entry_one_answer"), transaction.atomic():
        unit.flush()
