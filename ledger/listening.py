"""Hearing Postgres's NOTIFY: on a connection of its own, or beside the work of one."""

from __future__ import annotations

import select
from collections.abc import Iterator

import psycopg
from django.db import InterfaceError, OperationalError, connection
from psycopg import sql

# What a lost database raises: Django's errors on its connection, and psycopg's own on a
# listener, which is none of Django's. A loop that knows only the first dies with the second.
LOST = (
    *(OperationalError, InterfaceError),
    *(psycopg.OperationalError, psycopg.InterfaceError, OSError),
)

# What of Django's parameters is for libpq; the others are for psycopg and the pool.
_LIBPQ = frozenset(option.keyword.decode() for option in psycopg.pq.Conninfo.get_defaults())


def listen(channel: str) -> psycopg.Connection:
    """Open an autocommit connection to Django's database that listens on `channel`.

    Look for work once after this returns: what was sent before is not heard.
    """
    # All that libpq knows, TLS above all: a listener that leaves out `sslrootcert` talks to
    # whoever answers, and one that leaves out `sslcert` to nobody.
    given = connection.get_connection_params()
    kept = {name: value for name, value in given.items() if name in _LIBPQ}
    ears = psycopg.connect(**kept, autocommit=True)
    ears.execute(sql.SQL("LISTEN {}").format(sql.Identifier(channel)))
    return ears


def wait_for_notify(ears: psycopg.Connection, seconds: float) -> bool:
    """Wait for the next NOTIFY; False when none came in time. Several at once count as one."""
    ready, _, _ = select.select([ears], [], [], seconds)
    return bool(ready) and drain(ears)


def drain(ears: psycopg.Connection) -> bool:
    """Take every notification that is there. Raises OperationalError on a lost connection."""
    return len(list(heard(ears))) > 0


def heard(ears: psycopg.Connection) -> Iterator[str]:
    """What is said on a connection that has something to read. Raises as `drain` does.

    By psycopg's documented lower layer: its `notifies()` makes a selector and reads the clock for
    each call, which is half the work of a listener (0.05 ms of CPU a step in web and worker each).
    """
    ears.pgconn.consume_input()
    while said := ears.pgconn.notifies():
        yield said.extra.decode()


class EarsAtWork:
    """Django's connection of this thread, hearing a channel beside its work.

    A listener of its own would be one more server process, and each NOTIFY wakes all that listen in
    the database, to whatever channel (a step of one caller took 1.03 of the time).
    """

    def __init__(self, channel: str) -> None:
        self._channel = sql.Identifier(channel)
        self._on: psycopg.Connection | None = None
        self._rang = False

    def begin(self) -> bool:
        """See that it listens; True when it began just now: look for work once."""
        connection.ensure_connection()
        if self._on is connection.connection:
            return False
        with connection.cursor() as cursor:
            cursor.execute(sql.SQL("LISTEN {}").format(self._channel))
        self._on = connection.connection
        self._on.add_notify_handler(self._ring)
        return True

    def close(self) -> None:
        """Listen no more: whoever works on this connection next would not hear, only keep. Never
        raises; a connection that cannot be told is closed."""
        mine, self._on = self._on, None
        if mine is None or mine.closed:
            return
        mine.remove_notify_handler(self._ring)
        if mine is not connection.connection:
            return
        try:
            with connection.cursor() as cursor:
                cursor.execute("UNLISTEN *")
        except LOST:
            mine.close()

    def fileno(self) -> int:
        assert self._on is not None
        return self._on.fileno()

    def rang(self, *, reads: bool = False) -> bool:
        """Whether something was said since it was last asked; `reads` when there is something to
        read, else what came along with the answers of its work counts. Raises as `drain` does."""
        assert self._on is not None
        if reads:
            self._on.pgconn.consume_input()
        while self._on.pgconn.notifies():
            self._rang = True
        rang, self._rang = self._rang, False
        return rang

    def _ring(self, _said: object) -> None:
        """What psycopg has read itself."""
        self._rang = True
