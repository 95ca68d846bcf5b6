"""Letting a caller wait without letting callers use up the server.

A waiter keeps one server thread and nothing else: no transaction, no connection. Only
`SAGA_WAITERS` requests wait at a time; whoever comes later is answered at once, without
`Preference-Applied: wait`, and so knows that nobody waited.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar
from uuid import UUID

from django.conf import settings
from django.db import connections

from ledger.api.prefer import Preference
from ledger.wake import Watch, watching

Found = TypeVar("Found")


@functools.cache
def _seats() -> threading.BoundedSemaphore:
    return threading.BoundedSemaphore(settings.SAGA_WAITERS)


@contextmanager
def seat(preference: Preference, saga_id: UUID | str) -> Iterator[Watch | None]:
    """A registered watch on the saga, or None when no wait is wanted or no seat is free."""
    if not preference.wait_s or not _seats().acquire(blocking=False):
        yield None
        return
    try:
        with watching(saga_id) as watch:
            yield watch
    finally:
        _seats().release()


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
