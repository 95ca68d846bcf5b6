"""Cases of the queue and of what stands in it: late, bad, at the head, or with nobody to hear."""

from __future__ import annotations

import logging
import random
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from uuid import UUID

import pytest
import redis
from django.db import connection, transaction
from redis.exceptions import RedisError
from rq import Queue
from rq.serializers import JSONSerializer

from ledger import outbox, wake
from ledger.models import Attempt, Entry, OutboxMessage, Step
from ledger.models.fields import ClockTimestamp
from ledger.outcomes import Done
from ledger.services import shifts
from ledger.services.claiming import claim
from ledger.services.recording import Finished, record
from ledger.services.verifying import verify
from ledger.shift import ShiftLoop
from tests.approvalcast import behind_the_ledger
from tests.byhand import by_hand
from tests.deploys import Till, a_till, booking, state_of, step_of
from tests.running import eventually
from tests.shop import assert_verifies
from tests.test_cases_leases import let_run_out

__all__ = ["a_till"]
pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(autouse=True)
def short_shifts(settings: Any) -> Iterator[None]:
    settings.SAGA_SHIFT_LINGER_S = 1.0
    settings.SAGA_RING_GRACE_S = 1.0
    yield
    wake.close()


def in_a_thread(work: Any) -> threading.Thread:
    def run() -> None:
        try:
            work()
        finally:
            connection.close()

    thread = threading.Thread(target=run)
    thread.start()
    return thread


@pytest.mark.by_hand
def test_one_attempt_that_cannot_be_expired_stops_no_other(till: Till) -> None:
    """Case C42: each row of a sweep is on its own, and the next sweep looks again."""
    sagas = [till.open(booking("one", sum=n)) for n in range(3)]
    taken = till.claim()
    for one in taken:
        let_run_out(one.attempt)
    bad = Attempt.objects.order_by("lease_until").first()
    assert bad is not None
    # A row that no code can read: what a bug, or a hand, would leave behind.
    by_hand("ALTER TABLE ledger_attempt DISABLE TRIGGER ledger_attempt_frozen")
    Attempt.objects.filter(pk=bad.pk).update(direction="sideways")
    assert outbox.sweep() == 2
    left = {step.pk: step.state for step in Step.objects.filter(saga_id__in=sagas)}
    assert left.pop(bad.step_id) == "executing"
    assert set(left.values()) == {"unknown"}
    Attempt.objects.filter(pk=bad.pk).update(direction="forward")
    by_hand("ALTER TABLE ledger_attempt ENABLE TRIGGER ledger_attempt_frozen")
    assert outbox.sweep() == 1
    assert Step.objects.get(pk=bad.step_id).state == "unknown"
    assert_verifies()


@pytest.mark.by_hand
def test_a_poisoned_message_at_the_head_holds_nobody_up_and_is_tried_ever_less_often(
    till: Till, caplog: pytest.LogCaptureFixture
) -> None:
    """Case C47: it is put off for longer each time, with the reason; the others run."""
    bad, *good = [till.open(booking("one", sum=n)) for n in range(4)]
    message = OutboxMessage.objects.get(saga_id=bad)
    # Text that no claim can read: what a bug, or a hand, would leave behind.
    assert Step.objects.filter(saga_id=bad).update(result_text="{") == 1
    OutboxMessage.objects.filter(pk=message.pk).update(due_at=message.created_at.replace(year=2000))
    logging.getLogger("ledger.shift").addHandler(caplog.handler)
    began = time.monotonic()
    assert ShiftLoop(shifts.ring_row()).run() == 3
    logging.getLogger("ledger.shift").removeHandler(caplog.handler)
    assert [state_of(saga) for saga in good] == ["running"] * 3
    assert [step_of(saga).state for saga in good] == ["committed"] * 3
    tries = sum("a batch of claims was refused" in line for line in caplog.messages)
    assert 1 <= tries <= 1 + (time.monotonic() - began)
    message.refresh_from_db()
    assert message.parked_why.startswith("JSONDecodeError")
    assert message.taken_at is None
    waits = []
    for age_s in (0, 10, 1000):
        OutboxMessage.objects.filter(pk=message.pk).update(due_at=ClockTimestamp())
        older(message.pk, age_s)
        shifts.set_aside("again")
        message.refresh_from_db()
        waits.append((message.due_at - now()).total_seconds())
    assert waits == sorted(waits)
    assert waits[1] > 15
    assert 55 < waits[2] <= 60
    Step.objects.filter(saga_id=bad).update(result_text=None)
    OutboxMessage.objects.filter(pk=message.pk).update(due_at=ClockTimestamp())
    assert ShiftLoop(shifts.ring_row()).run() == 1
    assert step_of(bad).state == "committed"


@pytest.mark.by_hand
def test_what_is_too_large_for_postgres_holds_nobody_up(till: Till) -> None:
    """It calls that operational, as it does an outage: taken for one, it was tried for ever."""
    bad, good = till.open(booking("one", sum=1)), till.open(booking("one", sum=2))
    letters = "".join(random.Random(1).choices("0123456789abcdef", k=6000))
    with behind_the_ledger() as cursor:  # as an earlier release let it in
        cursor.execute("UPDATE ledger_step SET resource = %s WHERE saga_id = %s", [letters, bad])
    assert ShiftLoop(shifts.ring_row()).run() == 1
    assert step_of(good).state == "committed"
    assert "index row" in OutboxMessage.objects.get(saga_id=bad).parked_why


def older(message: int, seconds: int) -> None:
    with connection.cursor() as cursor:
        cursor.execute(
            "UPDATE ledger_outboxmessage SET created_at = clock_timestamp() "
            "- %s * interval '1 second' WHERE id = %s",
            [seconds, message],
        )


def now() -> Any:
    with connection.cursor() as cursor:
        cursor.execute("SELECT clock_timestamp()")
        return cursor.fetchone()[0]


def test_nothing_is_marked_as_sent_before_somebody_has_taken_it(
    till: Till, redis_client: redis.Redis
) -> None:
    """Case C50: a Redis that takes no job leaves every message where it was, and owed."""
    saga = till.open(booking("one"))
    shifts.end(till.shift, 0)
    queue = Queue(outbox.QUEUE, connection=redis_client, serializer=JSONSerializer)
    redis_client.config_set("maxmemory", "1")  # "noeviction": from here on every write is refused
    try:
        for _ in range(2):
            with pytest.raises(RedisError):
                outbox.ring_if_needed()
            assert not outbox.ring_if_needed()  # it counts as rung until its grace is over
            time.sleep(1.1)
    finally:
        redis_client.config_set("maxmemory", "0")
    waits = OutboxMessage.objects.get(saga_id=saga)
    assert (waits.taken_at, queue.get_job_ids()) == (None, [])
    assert outbox.ring_if_needed()
    assert len(queue.get_job_ids()) == 1
    # The job is there, and still nothing is marked: that is for the claim, with the intent.
    waits.refresh_from_db()
    assert waits.taken_at is None
    till.work()
    waits.refresh_from_db()
    assert waits.taken_at is not None
    assert step_of(saga).state == "committed"


@contextmanager
def uncommitted(work: Any) -> Iterator[None]:
    """`work` done in a transaction that commits when the block ends."""
    done, may_commit = threading.Event(), threading.Event()

    def run() -> None:
        with transaction.atomic():
            work()
            done.set()
            assert may_commit.wait(30)

    thread = in_a_thread(run)
    try:
        assert done.wait(30)
        yield
    finally:
        may_commit.set()
        thread.join(30)


def test_what_is_committed_late_under_a_lower_number_is_taken_all_the_same(till: Till) -> None:
    """Case C51: rows are taken by an unsent flag; there is no cursor for one to fall behind."""
    till.open(booking("one", sum=0))  # the first of a tool writes its version down, for all
    late: list[UUID] = []
    with uncommitted(lambda: late.append(till.open(booking("one", sum=1)))):
        early = till.open(booking("one", sum=2))
        till.work()
        assert step_of(early).state == "committed"
        assert not Step.objects.filter(saga_id=late[0]).exists()
    numbers = dict(OutboxMessage.objects.values_list("saga_id", "id"))
    assert numbers[late[0]] < numbers[early]
    till.work()
    assert step_of(late[0]).state == "committed"
    assert_verifies()


def test_no_reader_of_a_ledger_can_see_a_gap_that_is_filled_later(till: Till) -> None:
    """Case C51: an entry's number is given under its saga's lock, and the next one waits."""
    till.open(booking("one", sum=0))
    saga = till.open()
    with uncommitted(lambda: till.propose(saga, "one", sum=1)):
        seen = numbers_of(saga)
        second = in_a_thread(lambda: till.propose(saga, "two", sum=2))
        time.sleep(0.5)
        assert second.is_alive(), "the second had a number before the first was committed"
        assert numbers_of(saga) == seen
    second.join(30)
    assert numbers_of(saga) == list(range(1, len(numbers_of(saga)) + 1))
    assert [str(fault) for fault in verify()] == []


def numbers_of(saga: UUID) -> list[int]:
    return list(Entry.objects.filter(saga_id=saga).order_by("seq").values_list("seq", flat=True))


def test_a_broker_that_hangs_holds_no_lock_and_no_transaction(
    till: Till, redis_client: redis.Redis
) -> None:
    """Case C53: while the relay waits for Redis, others propose, claim and record as ever."""
    till.open(booking("one", sum=1))
    shifts.end(till.shift, 0)
    redis_client.client_pause(4_000)  # it is there and says nothing, for less than its caller waits
    relay = in_a_thread(outbox.ring_if_needed)
    eventually(lambda: shifts.live().rung == 1, "the relay is about to ring", 5)
    till.open(booking("one", sum=2))
    taken = claim(till.shift, 20)
    assert len(taken) == 2
    record(till.shift, [Finished(one, Done({"no": "1"})) for one in taken])
    assert relay.is_alive(), "they waited for the broker, or it did not hang"
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() "
            "AND pid <> pg_backend_pid() AND xact_start IS NOT NULL"
        )
        assert cursor.fetchone() == (0,)
    relay.join(30)
