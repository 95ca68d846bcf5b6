"""Letting a caller wait without letting callers use up the server.

A waiter keeps one server thread and nothing else: no transaction, no connection (but for a
moment: `KEEPS_S`). Only `SAGA_WAITERS` requests wait at a time; whoever comes later is answered at
once, without `Preference-Applied: wait`, and so knows that nobody waited.
"""

from __future__ import annotations

import functools
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar
from uuid import UUID

from django.conf import settings
from django.db import connections

from ledger import storage
from ledger.api.prefer import Preference
from ledger.queries import documents
from ledger.wake import Watch, watching

Found = TypeVar("Found")

# Who waits alone keeps its connection for this long: a quick tool's step has ended by then, and to
# give a connection back and take one again is a fortieth of such a step. With others in the room
# it is given back at once: few connections in turn are warmer than many.
KEEPS_S = 0.02


class _Room:
    """A number of seats, and how many of them are taken."""

    def __init__(self, seats: int) -> None:
        self._seats = seats
        self._lock = threading.Lock()
        self.taken = 0

    def take(self) -> bool:
        """Take a seat, if one is free."""
        with self._lock:
            is_free = self.taken < self._seats
            self.taken += is_free
        return is_free

    def leave(self) -> None:
        with self._lock:
            self.taken -= 1


@functools.cache
def _room() -> _Room:
    return _Room(settings.SAGA_WAITERS)


@contextmanager
def seat(preference: Preference, saga_id: UUID | str) -> Iterator[Watch | None]:
    """A registered watch on the saga, or None when no wait is wanted or no seat is free."""
    if not preference.wait_s or not _room().take():
        yield None
        return
    try:
        with watching(saga_id, reader=documents.rows_together) as watch:
            yield watch
    finally:
        _room().leave()


def for_a_new_step(
    watch: Watch, look: Callable[[], Found | None], seconds: float, *, step: UUID
) -> Found | None:
    """What `look` finds within `seconds` of proposing `step`, or None; see `Watch.wait`.

    The caller sits in a seat, registered before it proposed: the first look is when the bell rings.
    """
    deadline = time.monotonic() + seconds
    if not (_room().taken == 1 and watch.rings_within(min(KEEPS_S, seconds), about=step)):
        let_go()
    left = deadline - time.monotonic()
    # One that was kept may have died meanwhile; the pool looks at what it gives.
    look = without_connection(storage.read_back(look))
    return watch.wait(look, left, about=step, look_first=False)


def without_connection(look: Callable[[], Found | None]) -> Callable[[], Found | None]:
    """`look`, followed by giving the database connection back, so that sleeping holds none."""

    def look_and_let_go() -> Found | None:
        found = look()
        if found is None:
            let_go()
        return found

    return look_and_let_go


def let_go() -> None:
    """Give this thread's database connections back, unless the caller is inside a transaction."""
    for connection in connections.all(initialized_only=True):
        if not connection.in_atomic_block:
            connection.close()
