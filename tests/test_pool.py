"""The pool gives out what came back last; nothing rests on what a server remembers."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from django.db import OperationalError, connection
from django.db.backends.base.base import BaseDatabaseWrapper
from psycopg.pq import TransactionStatus
from psycopg_pool import ConnectionPool

from ledger import storage

pytestmark = pytest.mark.django_db


@pytest.fixture
def two() -> Iterator[list[BaseDatabaseWrapper]]:
    """Two more users of this process's pool, as two threads would be."""
    users = [connection.copy(), connection.copy()]
    yield users
    for user in users:
        user.close()


@pytest.mark.parametrize("last", [0, 1])
def test_the_connection_that_came_back_last_is_given_out_next(two, last: int) -> None:
    for user in two:
        user.ensure_connection()
    warm = two[last].connection
    two[1 - last].close()
    two[last].close()
    two[0].ensure_connection()
    assert two[0].connection is warm


def test_the_other_one_is_still_there_for_who_comes_meanwhile(two) -> None:
    for user in two:
        user.ensure_connection()
    both = {user.connection for user in two}
    for user in two:
        user.close()
    for user in two:
        user.ensure_connection()
    assert {user.connection for user in two} == both


@pytest.mark.django_db(transaction=True)
def test_a_transition_survives_a_server_that_has_forgotten_every_prepared_statement() -> None:
    """A pooler in between hands out another session; BEGIN and COMMIT are prepared as well."""

    @storage.transition
    def counted() -> int:
        found: int = storage.the_row("SELECT count(*) AS n FROM ledger_saga").n
        storage.execute_last([("SELECT 1", [])])
        return found

    assert counted() == 0
    with connection.cursor() as cursor:
        cursor.execute("DEALLOCATE ALL")
    assert counted() == 0
    assert connection.connection.info.transaction_status == TransactionStatus.IDLE


@pytest.mark.django_db(transaction=True)
def test_a_look_outside_a_transition_survives_it_too() -> None:
    assert storage.the_row("SELECT count(*) AS n FROM ledger_step").n == 0
    with connection.cursor() as cursor:
        cursor.execute("DEALLOCATE ALL")
    mine = connection.connection
    assert storage.the_row("SELECT count(*) AS n FROM ledger_step").n == 0
    assert connection.connection is mine


def test_where_no_connection_was_to_be_had_nothing_may_be_done() -> None:
    """Nothing was sent, so there is no lost COMMIT to read back."""
    nowhere = ConnectionPool("host=127.0.0.1 port=1", min_size=1, timeout=0.1, open=True)
    with nowhere, pytest.raises(OperationalError) as met, connection.wrap_database_errors:
        nowhere.getconn()
    assert storage.is_lost(met.value)
    assert not storage.may_be_done(met.value)


@pytest.mark.django_db(transaction=True)
def test_a_transition_survives_a_table_that_was_changed_under_its_statements() -> None:
    """What a migration does to a console that runs: prepared anew, on the same connection."""

    @storage.transition
    def columns() -> int:
        found = storage.rows("SELECT * FROM changing")
        storage.execute_last([("SELECT 1", [])])
        return len(found[0])

    with connection.cursor() as cursor:
        cursor.execute("CREATE TEMP TABLE changing AS SELECT 1 AS a")
        mine = connection.connection
        assert columns() == 1
        for width in (2, 3):
            cursor.execute(f"ALTER TABLE changing ADD COLUMN more_{width} int")
            assert columns() == width
    assert connection.connection is mine
