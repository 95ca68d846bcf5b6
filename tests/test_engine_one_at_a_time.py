"""One call of a step at a time, whatever is said of it twice, at once or in one batch."""

from __future__ import annotations

from typing import Any
from uuid import UUID, uuid4

import pytest
from django.apps import apps
from django.db import IntegrityError, connection, transaction

from ledger.models import Attempt, OutboxMessage
from ledger.outcomes import Failed, NotApplied, Outcome, Unknown
from ledger.services.closing import abort
from ledger.services.operating import resolve
from ledger.services.recording import Finished, record
from tests.deploys import Till, a_till, booking, state_of, step_of
from tests.doubtcast import ONA, due_now, expire
from tests.shop import assert_verifies

__all__ = ["a_till"]


def undo_is_out(till: Till) -> tuple[UUID, list[Any]]:
    """An undo whose worker was stopped past its lease: a look is wanted."""
    till.release(retries=3)
    saga = till.open(booking("one"))
    till.work()
    abort(saga, "no", bearer=till.agent)
    taken = till.claim()
    expire(taken[0])
    return saga, taken


def waiting(saga: UUID) -> list[str]:
    found = OutboxMessage.objects.filter(step=step_of(saga), taken_at=None)
    return list(found.values_list("kind", flat=True))


def undone_once(till: Till, saga: UUID) -> None:
    due_now()
    till.work()
    assert [line.split()[0] for line in till.lines()] == ["booked", "compensate"]
    assert state_of(saga) == "compensated"
    assert_verifies()


def test_two_looks_that_come_back_together_send_one_undo(till: Till) -> None:
    """Case P19: the second is weighed by what the first has led to."""
    saga, taken = undo_is_out(till)
    till.answer(taken, Unknown("the line went dead"))  # it wakes: one more look is wanted
    for _ in range(2):
        due_now()
        looks = till.claim()
        assert [look.attempt for look in looks] == [None, None]
        till.answer(looks, NotApplied())
    assert waiting(saga) == ["run"]
    undone_once(till, saga)


def test_two_looks_that_late_evidence_answers_send_one_undo(till: Till) -> None:
    saga, taken = undo_is_out(till)
    till.answer(taken, Failed("503 busy", retryable=True))
    due_now()
    assert till.claim() == []
    assert waiting(saga) == ["run"]
    undone_once(till, saga)


@pytest.mark.parametrize("failed_first", [True, False])
def test_a_late_done_counts_whatever_stands_before_it_in_the_batch(
    till: Till, *, failed_first: bool
) -> None:
    saga, first = undo_is_out(till)
    late: Outcome = first[0].tool.run(first[0].call)
    resolve(step_of(saga).pk, "did_not_happen", reason="saw nothing", actor=ONA)
    due_now()
    (second,) = till.claim()
    batch = [Finished(second, Failed("429", retryable=True)), Finished(first[0], late)]
    record(till.shift, batch if failed_first else batch[::-1])
    undone_once(till, saga)


def test_a_second_message_calls_nothing_while_a_call_is_out(till: Till) -> None:
    saga, taken = undo_is_out(till)
    till.answer(taken, Failed("503 busy", retryable=True))
    due_now()
    assert till.claim() == []
    (message,) = OutboxMessage.objects.filter(step=step_of(saga), taken_at=None)
    for _ in range(2):
        message.pk = None
        message.save()
    due_now()
    (undo,) = till.claim()
    message.pk = None
    message.save()
    due_now()
    assert till.claim() == []
    till.answer([undo], undo.tool.run(undo.call))
    undone_once(till, saga)


def test_the_database_holds_one_started_attempt_of_a_step(till: Till) -> None:
    """The state of an undo does not change while it is tried: only this index stands behind it."""
    saga = till.open(booking("one"))
    till.work()
    abort(saga, "no", bearer=till.agent)
    (taken,) = till.claim()
    second = Attempt.objects.get(pk=taken.attempt)
    second.pk, second.fence = uuid4(), second.fence + 1
    with pytest.raises(IntegrityError, match="ledger_attempt_one_at_a_time"), transaction.atomic():
        second.save(force_insert=True)


def test_what_the_models_declare_stands_in_the_database(db: None) -> None:
    """A migration may drop an index that another one made, and Django then does not tell."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT indexname FROM pg_indexes WHERE schemaname = 'public' "
            "UNION SELECT conname FROM pg_constraint"
        )
        standing = {name for (name,) in cursor.fetchall()}
    metas = [model._meta for model in apps.get_models()]
    declared = {one.name for meta in metas for one in (*meta.constraints, *meta.indexes)}
    assert "ledger_attempt_one_at_a_time" in declared
    assert declared <= standing
