"""Plain SQL on Django's own connection: prepared once, inside Django's transactions.

The hot transitions are a few statements each; through the ORM the same rows cost twice as
much (docs/decisions/0004-plain-sql-on-the-hot-path.md). Everything here takes part in
`transaction.atomic`, so services may mix both.
"""

from __future__ import annotations

import functools
import logging
import random
import time
from collections.abc import Callable, Sequence
from typing import Any, ParamSpec, TypeVar

import psycopg
from django.db import DatabaseError, InterfaceError, OperationalError, connection, transaction
from psycopg.rows import namedtuple_row
from psycopg.types.json import JsonbLoader

logger = logging.getLogger(__name__)

P = ParamSpec("P")
T = TypeVar("T")

# Whole-transaction retries on serialization failure and deadlock, until this much time has
# passed: longer than any honest queue behind one saga's lock, shorter than a caller's patience.
RETRY_DEADLINE_S = 5.0
# 40001 serialization_failure, 40P01 deadlock_detected: nothing was done, all may be done again.
RETRY_STATES = frozenset({"40001", "40P01"})


def _cursor() -> psycopg.Cursor[Any]:
    connection.ensure_connection()
    cursor = psycopg.Cursor(connection.connection, row_factory=namedtuple_row)
    # Django takes jsonb as text, because its fields parse it; rows read here have no fields.
    cursor.adapters.register_loader("jsonb", JsonbLoader)
    return cursor


def rows(sql: str, params: Sequence[Any] | dict[str, Any] = ()) -> list[Any]:
    """Every row of one statement, as named tuples. Raises Django's database errors."""
    with connection.wrap_database_errors, _cursor() as cursor:
        cursor.execute(sql, params, prepare=True)
        return cursor.fetchall()


def row(sql: str, params: Sequence[Any] | dict[str, Any] = ()) -> Any | None:
    """The first row, or None."""
    with connection.wrap_database_errors, _cursor() as cursor:
        cursor.execute(sql, params, prepare=True)
        return cursor.fetchone()


def the_row(sql: str, params: Sequence[Any] | dict[str, Any] = ()) -> Any:
    """The one row of a statement that always has one."""
    found = row(sql, params)
    assert found is not None, sql
    return found


def execute(sql: str, params: Sequence[Any] | dict[str, Any] = ()) -> int:
    """Run one statement; the number of rows that it touched."""
    with connection.wrap_database_errors, _cursor() as cursor:
        cursor.execute(sql, params, prepare=True)
        return cursor.rowcount


Statement = tuple[str, Sequence[Any] | dict[str, Any]]


def _all(statements: Sequence[Statement]) -> list[psycopg.Cursor[Any]]:
    """Run statements in order, in one round trip.

    Each still sees what was committed when it began (READ COMMITTED), so what is read behind
    a lock is read under it. On a busy machine most of a small statement's time is the waiting
    for its answer: three trips instead of six for a proposal.
    """
    with connection.wrap_database_errors:
        cursors = [_cursor() for _ in statements]
        with connection.connection.pipeline():
            for cursor, (sql, params) in zip(cursors, statements, strict=True):
                cursor.execute(sql, params, prepare=True)
        # psycopg ends a pipeline with a Flush, and after one Postgres no longer counts an idle
        # transaction's time: a worker that is stopped here would keep its locks for ever.
        connection.connection.pgconn.exec_(b"")
        return cursors


def rows_all(statements: Sequence[Statement]) -> list[list[Any]]:
    """The rows of each statement; one round trip."""
    if len(statements) < 2:
        return [rows(*statement) for statement in statements]
    return [cursor.fetchall() for cursor in _all(statements)]


def execute_all(statements: Sequence[Statement]) -> list[int]:
    """The number of rows that each statement touched; one round trip."""
    if len(statements) < 2:
        return [execute(*statement) for statement in statements]
    return [cursor.rowcount for cursor in _all(statements)]


def sqlstate(error: BaseException) -> str:
    """The five-letter SQLSTATE behind a database error, or ''. Never matched by text."""
    cause = error.__cause__ if isinstance(error, DatabaseError) else error
    return getattr(cause, "sqlstate", None) or ""


def is_lost(error: BaseException) -> bool:
    """Whether the connection broke, so that nobody knows if a COMMIT was carried out.

    Class 08 is connection trouble, 57P01 to 57P03 a server going down or coming up; a break
    without any answer has no SQLSTATE at all.
    """
    if not isinstance(error, OperationalError | InterfaceError):
        return False
    state = sqlstate(error)
    return not state or state.startswith("08") or state in {"57P01", "57P02", "57P03"}


def read_back(function: Callable[P, T]) -> Callable[P, T]:
    """Run a transition once more on a new connection when its COMMIT may have been lost.

    Only for transitions that find what they did by its key: run again they answer from the
    ledger, and do it only if it was not done (design rule 5.1, case P2).
    """

    @functools.wraps(function)
    def wrapped(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return function(*args, **kwargs)
        except (OperationalError, InterfaceError) as error:
            if connection.in_atomic_block or not is_lost(error):
                raise
            logger.warning("the connection was lost in %s; reading back", function.__name__)
            connection.close()
            return function(*args, **kwargs)

    return wrapped


def transition(function: Callable[P, T]) -> Callable[P, T]:
    """Make a function one transaction, run again as a whole when Postgres asks for it.

    Joins the caller's transaction when there is one: only the outermost retries.
    """

    @functools.wraps(function)
    def wrapped(*args: P.args, **kwargs: P.kwargs) -> T:
        if connection.in_atomic_block:
            return function(*args, **kwargs)
        deadline = time.monotonic() + RETRY_DEADLINE_S
        while True:
            try:
                with transaction.atomic():
                    return function(*args, **kwargs)
            except DatabaseError as error:
                if sqlstate(error) not in RETRY_STATES or time.monotonic() > deadline:
                    raise
                logger.info("running %s again after %s", function.__name__, sqlstate(error))
                time.sleep(random.uniform(0.001, 0.02))  # noqa: S311 - spreading, not a secret

    return wrapped
