"""What is sent ahead of its wait: a part of its transaction as everything else is."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing, suppress

import psycopg
import pytest
from django.db import DatabaseError, OperationalError, connection, transaction
from psycopg.pq import PipelineStatus, TransactionStatus

from ledger import pipeline, storage
from ledger.listening import listen
from ledger.models import Agent
from ledger.statements import Statement

pytestmark = pytest.mark.django_db(transaction=True)

# Every value of the statements here is a plain one.
ONE: Statement = ("SELECT 1 AS n", [])
TWO: Statement = ("SELECT %s::int AS n", [2])
WRONG: Statement = ("SELECT 1 / %s::int AS n", [0])


def names() -> set[str]:
    return set(Agent.objects.values_list("name", flat=True))


def added(name: str) -> Statement:
    insert = (
        "INSERT INTO ledger_agent (id, name, created_at) "
        "VALUES (gen_random_uuid(), %s, clock_timestamp())"
    )
    return insert, [name]


def is_as_everybody_knows_it() -> bool:
    pg = connection.connection.pgconn
    return bool(
        pg.pipeline_status == PipelineStatus.OFF and pg.transaction_status == TransactionStatus.IDLE
    )


@pytest.fixture
def other() -> Iterator[psycopg.Connection]:
    """Another session, which waits for no lock."""
    with closing(listen("nothing")) as session:
        session.execute("SET lock_timeout = '10ms'")
        yield session


def is_locked(other: psycopg.Connection, name: str) -> bool:
    try:
        other.execute("UPDATE ledger_agent SET name = name WHERE name = %s", [name])
    except psycopg.errors.LockNotAvailable:
        return True
    return False


def test_its_rows_are_there_with_what_is_run_next_and_are_not_mixed_with_it() -> None:
    with transaction.atomic():
        coming = storage.ahead([ONE, TWO])
        assert [row.n for row in storage.rows("SELECT 3 AS n")] == [3]
        assert [rows[0].n for rows in storage.rows_of(coming)] == [1, 2]


def test_who_asks_for_its_rows_waits_for_them() -> None:
    with transaction.atomic():
        first, second = storage.ahead([ONE]), storage.ahead([TWO])
        assert [rows[0].n for rows in storage.rows_of(second)] == [2]
        assert [rows[0].n for rows in storage.rows_of(first)] == [1]
    assert is_as_everybody_knows_it()


def test_its_rows_are_not_kept_back_by_what_was_sent_after_it(other) -> None:
    Agent.objects.create(name="held")
    other.execute("BEGIN")
    other.execute("UPDATE ledger_agent SET name = name")
    with transaction.atomic():
        first = storage.ahead([ONE])
        late = storage.ahead([("SELECT name FROM ledger_agent FOR UPDATE", [])])
        assert storage.rows_of(first)[0][0].n == 1
        other.execute("ROLLBACK")
        assert storage.rows_of(late)[0][0].name == "held"


def test_it_has_begun_before_anybody_waits_for_it(other) -> None:
    Agent.objects.create(name="held")
    with transaction.atomic():
        storage.ahead([("UPDATE ledger_agent SET name = name", [])])
        until = time.monotonic() + 5
        while not is_locked(other, "held"):
            assert time.monotonic() < until


def test_where_others_wait_for_postgres_it_stays_with_what_is_run_next(other, monkeypatch) -> None:
    Agent.objects.create(name="held")
    monkeypatch.setattr(pipeline, "_WAITING", {"somebody"})
    with transaction.atomic():
        storage.ahead([("UPDATE ledger_agent SET name = name", [])])
        time.sleep(0.1)
        assert not is_locked(other, "held")
        storage.rows(*ONE)
        assert is_locked(other, "held")


def test_an_error_in_it_is_raised_by_what_is_run_next_and_undoes_all() -> None:
    def wrong() -> None:
        storage.execute(*added("kept"))
        storage.ahead([WRONG])
        storage.rows(*ONE)

    with pytest.raises(DatabaseError, match="division by zero"), transaction.atomic():
        wrong()
    assert names() == set()
    assert is_as_everybody_knows_it()


def test_or_where_it_is_waited_for() -> None:
    def wrong() -> None:
        storage.execute(*added("kept"))
        coming = storage.ahead([WRONG])
        storage.ahead([added("after")])
        storage.rows_of(coming)

    with pytest.raises(DatabaseError, match="division by zero"), transaction.atomic():
        wrong()
    assert names() == set()
    assert is_as_everybody_knows_it()
    # What Postgres never prepared, because it came after the fault, is not believed to be.
    storage.execute(*added("again"))
    assert names() == {"again"}


def test_a_transaction_that_ends_without_waiting_for_it_has_done_it() -> None:
    with transaction.atomic():
        storage.ahead([added("one")])
    assert names() == {"one"}


def test_or_says_why_not() -> None:
    with pytest.raises(DatabaseError, match="division by zero"), transaction.atomic():
        storage.ahead([added("one"), WRONG])
    assert names() == set()
    assert is_as_everybody_knows_it()


def test_a_fault_of_the_program_undoes_it_and_leaves_the_connection_as_it_was() -> None:
    connection.ensure_connection()
    mine = connection.connection

    def faulty() -> None:
        storage.ahead([added("one")])
        storage.ahead([added("two")])
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError), transaction.atomic():
        faulty()
    assert connection.connection is mine
    assert is_as_everybody_knows_it()
    assert names() == set()


def test_django_itself_may_be_used_at_any_moment() -> None:
    """Its cursors, its savepoints: the channel has heard everything before they begin."""
    with transaction.atomic():
        storage.ahead([added("one")])
        assert names() == {"one"}
        storage.ahead([added("two")])
        with transaction.atomic():
            storage.ahead([added("three")])
            transaction.set_rollback(True)
        storage.ahead([added("four")])
        Agent.objects.create(name="five")
    assert names() == {"one", "two", "four", "five"}


def test_a_server_that_goes_away_meanwhile_is_an_outage_and_nothing_else(other) -> None:
    def broken() -> None:
        storage.execute(*added("one"))
        coming = storage.ahead([added("two")])
        pid = connection.connection.info.backend_pid
        other.execute("SELECT pg_terminate_backend(%s, 5000)", [pid])
        storage.rows_of(coming)
        storage.rows(*ONE)

    with pytest.raises(OperationalError) as met, transaction.atomic():
        broken()
    assert storage.is_lost(met.value)
    assert names() == set()


def test_a_transition_is_run_again_when_what_it_sent_ahead_was_forgotten() -> None:
    @storage.transition
    def counted() -> int:
        coming = storage.ahead([("SELECT count(*) AS n FROM ledger_saga", [])])
        found: int = storage.rows_of(coming)[0][0].n
        storage.execute_last([ONE])
        return found

    assert counted() == 0
    with connection.cursor() as cursor:
        cursor.execute("DEALLOCATE ALL")
    assert counted() == 0
    assert is_as_everybody_knows_it()


def test_a_client_that_stops_behind_it_does_not_keep_its_locks(other) -> None:
    """Decision 51: Postgres sees a transaction that is idle, and not a statement to come."""
    Agent.objects.create(name="held")

    def stopped() -> None:
        with connection.cursor() as cursor:
            cursor.execute("SET LOCAL idle_in_transaction_session_timeout = '200ms'")
        storage.ahead([("SELECT name FROM ledger_agent FOR UPDATE", [])])
        until = time.monotonic() + 5
        while not is_locked(other, "held"):
            assert time.monotonic() < until
        while is_locked(other, "held"):
            assert time.monotonic() < until
        storage.rows(*ONE)

    with pytest.raises(OperationalError) as met, transaction.atomic():
        stopped()
    assert storage.is_lost(met.value)


def test_who_gives_up_does_not_wait_for_a_lock(other) -> None:
    Agent.objects.create(name="held")
    other.execute("BEGIN")
    other.execute("UPDATE ledger_agent SET name = name")
    connection.ensure_connection()
    mine = connection.connection

    def given_up() -> None:
        storage.execute(*added("one"))
        storage.ahead([("SELECT name FROM ledger_agent FOR UPDATE", [])])
        storage.ahead([added("two")])
        raise ZeroDivisionError

    began = time.monotonic()
    with pytest.raises(ZeroDivisionError), transaction.atomic():
        given_up()
    assert time.monotonic() - began < 2
    other.execute("ROLLBACK")
    assert connection.connection is mine
    assert is_as_everybody_knows_it()
    assert names() == {"held"}


def test_what_failed_is_not_committed_in_silence() -> None:
    """Whoever caught the error inside has not undone it."""

    def swallowed() -> None:
        storage.execute(*added("one"))
        storage.ahead([WRONG])
        with suppress(DatabaseError), transaction.atomic():
            storage.execute(*added("two"))

    with pytest.raises(DatabaseError, match="rolled back"), transaction.atomic():
        swallowed()
    assert names() == set()
    assert is_as_everybody_knows_it()


def test_nothing_goes_ahead_of_what_is_over() -> None:
    @storage.transition
    def late() -> None:
        storage.execute_last([added("one")])
        storage.ahead([added("two")])

    with pytest.raises(AssertionError, match="nothing can follow"):
        late()
    assert names() == {"one"}
