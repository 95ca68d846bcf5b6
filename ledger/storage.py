"""Plain SQL on Django's own connection: prepared once, inside Django's transactions.

The hot transitions are a few statements each; through the ORM the same rows cost twice as
much (docs/decisions/0004-plain-sql-on-the-hot-path.md). Everything here takes part in
`transaction.atomic`, so services may mix both.
"""

from __future__ import annotations

import functools
import logging
import random
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, ParamSpec, TypeVar

import psycopg
from django.db import (
    DEFAULT_DB_ALIAS,
    DatabaseError,
    InterfaceError,
    InternalError,
    OperationalError,
    connection,
    connections,
    transaction,
)
from psycopg_pool import PoolTimeout

from ledger.pipeline import STALE, channel
from ledger.statements import Coming, Found, Params, Statement

logger = logging.getLogger(__name__)

P = ParamSpec("P")
T = TypeVar("T")

# Whole-transaction retries on serialization failure and deadlock, until this much time has
# passed: longer than any honest queue behind one saga's lock, shorter than a caller's patience.
RETRY_DEADLINE_S = 5.0
# 40001 serialization_failure, 40P01 deadlock_detected, or a statement to prepare anew: nothing
# was done, all may be done again.
RETRY_STATES = frozenset({"40001", "40P01"}) | STALE


class _Transition(threading.local):
    """This thread's outermost transition: whether it may commit early, and whether it has."""

    may_commit = False
    has_committed = False

    @contextmanager
    def outermost(self) -> Iterator[None]:
        self.may_commit = True
        try:
            yield
        finally:
            self.may_commit = self.has_committed = False


_transition = _Transition()


def _run(statements: Sequence[Statement], *, commit: bool = False) -> list[Found]:
    assert not _transition.has_committed, "nothing can follow the last flush of a transition"
    # Once: each attribute of `connection` is looked up by thread, in 4 µs.
    mine = connections[DEFAULT_DB_ALIAS]
    with mine.wrap_database_errors:
        mine.ensure_connection()
        hot = channel(mine.connection)
        try:
            return hot.run(statements, commit=commit)
        except psycopg.Error as error:
            # Alone they are prepared anew at once; in a transaction all of it begins anew.
            if mine.in_atomic_block or error.sqlstate not in STALE:
                raise
            return hot.run(statements, commit=commit)


def rows(sql: str, params: Params = ()) -> list[Any]:
    """Every row of one statement, as named tuples. Raises Django's database errors."""
    return _run([(sql, params)])[0].rows


def rows_on(mine: psycopg.Connection[Any], sql: str, params: Params = ()) -> list[Any]:
    """The same on a connection that is none of Django's. Raises psycopg's errors."""
    return channel(mine).run([(sql, params)])[0].rows


def row(sql: str, params: Params = ()) -> Any | None:
    """The first row, or None."""
    found = rows(sql, params)
    return found[0] if found else None


def the_row(sql: str, params: Params = ()) -> Any:
    """The one row of a statement that always has one."""
    found = row(sql, params)
    assert found is not None, sql
    return found


def execute(sql: str, params: Params = ()) -> int:
    """Run one statement; the number of rows that it touched."""
    return _run([(sql, params)])[0].count


def rows_all(statements: Sequence[Statement]) -> list[list[Any]]:
    """The rows of each statement, run in order in one round trip.

    Each still sees what was committed when it began (READ COMMITTED), so what is read behind
    a lock is read under it.
    """
    return [found.rows for found in _run(statements)] if statements else []


def ahead(statements: Sequence[Statement]) -> Coming:
    """Send statements of the transaction that is open, and go on while Postgres works on them.

    `rows_of` waits for what they find; what goes wrong is raised there, or by what reads before.
    """
    assert not _transition.has_committed, "nothing can follow the last flush of a transition"
    mine = connections[DEFAULT_DB_ALIAS]
    assert mine.in_atomic_block
    with mine.wrap_database_errors:
        mine.ensure_connection()
        return channel(mine.connection).ahead(statements)


def rows_of(coming: Coming) -> list[list[Any]]:
    """The rows of each statement that was sent ahead."""
    mine = connections[DEFAULT_DB_ALIAS]
    with mine.wrap_database_errors:
        return [found.rows for found in channel(mine.connection).hear(coming)]


def execute_all(statements: Sequence[Statement]) -> None:
    """Run statements in order, in one round trip."""
    if statements:
        _run(statements)


def execute_last(statements: Sequence[Statement]) -> None:
    """The same, and COMMIT with them when the transition that ends here is the outermost.

    Nothing may follow in the transition: what was to be checked, the statements check
    (`expect`). Inside a caller's transaction or a savepoint it only executes.
    """
    if _transition.may_commit and not connection.savepoint_ids:
        _run(statements, commit=True)
        _transition.has_committed = True
    else:
        execute_all(statements)


# What is raised while Postgres cannot work: lost or full (operational), or read only (internal,
# 25006). Nothing is wrong with what was asked; the same may be asked again.
AWAY = (OperationalError, InterfaceError, InternalError)


def sqlstate(error: BaseException) -> str:
    """The five-letter SQLSTATE behind a database error, or ''. Never matched by text."""
    cause = error.__cause__ if isinstance(error, DatabaseError) else error
    return getattr(cause, "sqlstate", None) or ""


def is_away(error: BaseException) -> bool:
    """Whether Postgres cannot work now, so that the same may be asked again: see `AWAY`.

    Not of class 54, which Postgres calls operational too: what was asked is larger than it can
    ever keep, and asked again it would be refused again.
    """
    return isinstance(error, AWAY) and not sqlstate(error).startswith("54")


def said(error: BaseException) -> str:
    """What went wrong in one sentence, for people: of Postgres its message, never a statement."""
    cause = error.__cause__ if isinstance(error, DatabaseError) else error
    told = getattr(getattr(cause, "diag", None), "message_primary", None)
    return f"The database refused it: {told}." if told else f"{type(error).__name__}: {error}"


def is_lost(error: BaseException) -> bool:
    """Whether the connection broke, so that nobody knows if a COMMIT was carried out.

    Class 08 is connection trouble, 57P01 to 57P03 a server going down or coming up; a break
    without any answer has no SQLSTATE at all.
    """
    if not isinstance(error, OperationalError | InterfaceError):
        return False
    state = sqlstate(error)
    return not state or state.startswith("08") or state in {"57P01", "57P02", "57P03"}


def may_be_done(error: BaseException) -> bool:
    """Whether a COMMIT may have been carried out whose answer was lost.

    Not where no connection was to be had: nothing was sent, and to wait for one again would hold
    a web thread as long once more.
    """
    return is_lost(error) and not has_no_connection(error)


def has_no_connection(error: BaseException) -> bool:
    """Whether no connection was to be had for as long as one is waited for."""
    return isinstance(error.__cause__, PoolTimeout)


def alone(work: Callable[[], int | bool]) -> int:
    """One row of many that a sweep takes: what goes wrong with it is told, and stops no other."""
    try:
        return int(work())
    except Exception as error:
        # A row that somebody holds locked (55P03) is no lost database.
        if is_lost(error):
            raise
        logger.exception("one item of a sweep failed")
        return 0


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
            if connection.in_atomic_block or not may_be_done(error):
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
                with transaction.atomic(), _transition.outermost():
                    return function(*args, **kwargs)
            except DatabaseError as error:
                if sqlstate(error) not in RETRY_STATES or time.monotonic() > deadline:
                    raise
                logger.info("running %s again after %s", function.__name__, sqlstate(error))
                time.sleep(random.uniform(0.001, 0.02))  # noqa: S311 - spreading, not a secret

    return wrapped
