"""The waiting room: one LISTEN for a whole process, and every waiter woken by it.

A trigger notifies `ledger_finished` with "<saga uuid> <step uuid>" when a step reaches an
end or gets stuck (ledger/walls.py). Being told is a doorbell, never the truth: whoever is
woken looks at the database, and looks every `SAFETY_NET_S` even when nothing rings.

A waiter must register before it looks, or before it asks for the work at all. Then no
notification can fall between the look and the sleep:

    with watching(saga_id) as watch:
        answer = propose(...)
        step = watch.wait(look, 10.0, about=answer.step, look_first=False)
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar
from uuid import UUID

import psycopg
from django.db import DEFAULT_DB_ALIAS, connections

CHANNEL = "ledger_finished"
# A lost notification costs at most this; a poll of one row a second and waiter is cheap.
SAFETY_NET_S = 1.0
# A connection that died without a word is found out at the latest after this.
SILENCE_S = 20.0
# Postgres restarts in a second or two; more than that is an outage, and needs no hurry.
RECONNECT_S = (0.1, 0.5, 1.0, 5.0)

log = logging.getLogger(__name__)
Found = TypeVar("Found")
Key = UUID | str


class Watch:
    """One waiter: what it has been told since it registered."""

    def __init__(self, keys: Iterable[Key]) -> None:
        self.keys = {str(key) for key in keys}
        self._bell = threading.Event()
        self._lock = threading.Lock()
        self._told: set[str] = set()
        # Set when notifications may have been missed: then only looking helps.
        self._blind = False

    def tell(self, keys: Iterable[str]) -> None:
        with self._lock:
            self._told.update(keys)
            self._bell.set()

    def look_yourself(self) -> None:
        with self._lock:
            self._blind = True
            self._bell.set()

    def wait(
        self,
        look: Callable[[], Found | None],
        seconds: float,
        *,
        about: Key | None = None,
        look_first: bool = True,
    ) -> Found | None:
        """What `look` finds within `seconds`, or None. `look` says None for "not yet".

        `about` narrows the bell to one step of a watched saga. `look_first=False` is for
        a caller that registered before it asked for the work: nothing can have been
        missed, so the first look would be a query for nothing.
        """
        deadline = time.monotonic() + seconds
        if look_first and (found := look()) is not None:
            return found
        wanted = None if about is None else str(about)
        next_look = time.monotonic() + SAFETY_NET_S
        while (now := time.monotonic()) < deadline:
            rang = self._bell.wait(min(deadline, next_look) - now)
            if rang and not self._concerns(wanted):
                continue
            if (found := look()) is not None:
                return found
            next_look = time.monotonic() + SAFETY_NET_S
        return None

    def _concerns(self, wanted: str | None) -> bool:
        with self._lock:
            concerns = self._blind or wanted is None or wanted in self._told
            self._blind = False
            self._told.clear()
            self._bell.clear()
        return concerns


class Hub:
    """The listener of this process and who waits. Made by `hub()`, never shared over a fork."""

    def __init__(self) -> None:
        self.pid = os.getpid()
        self._lock = threading.Lock()
        self._watches: dict[str, set[Watch]] = {}
        self._thread: threading.Thread | None = None
        self.listening = threading.Event()

    def register(self, watch: Watch) -> None:
        with self._lock:
            for key in watch.keys:
                self._watches.setdefault(key, set()).add(watch)
            if self._thread is None or not self._thread.is_alive():
                self._thread = threading.Thread(target=self._run, name="wake", daemon=True)
                self._thread.start()
        if not self.listening.is_set():
            watch.look_yourself()

    def unregister(self, watch: Watch) -> None:
        with self._lock:
            for key in watch.keys:
                waiting = self._watches.get(key, set())
                waiting.discard(watch)
                if not waiting:
                    self._watches.pop(key, None)

    def ring(self, payload: str) -> None:
        """Wake whoever waits for a key in the payload."""
        keys = payload.split()
        with self._lock:
            concerned = {watch for key in keys for watch in self._watches.get(key, ())}
        for watch in concerned:
            watch.tell(keys)

    def _wake_all(self) -> None:
        with self._lock:
            everybody = {watch for waiting in self._watches.values() for watch in waiting}
        for watch in everybody:
            watch.look_yourself()

    def _run(self) -> None:
        failures = 0
        while True:
            try:
                with psycopg.connect(**_own_connection()) as connection:
                    connection.execute(f"LISTEN {CHANNEL}")
                    self.listening.set()
                    failures = 0
                    # Whatever was said while nobody listened is lost: look.
                    self._wake_all()
                    self._listen(connection)
            except (psycopg.Error, OSError) as error:
                self.listening.clear()
                pause = RECONNECT_S[min(failures, len(RECONNECT_S) - 1)]
                failures += 1
                log.warning("not listening for finished steps, again in %s s: %s", pause, error)
                time.sleep(pause)

    def _listen(self, connection: psycopg.Connection[Any]) -> None:
        while True:
            for notification in connection.notifies(timeout=SILENCE_S):
                self.ring(notification.payload)
            connection.execute("SELECT 1")


def _own_connection() -> dict[str, Any]:
    """Arguments of a connection of its own, outside Django's pool, in autocommit."""
    wrapper = connections[DEFAULT_DB_ALIAS]
    parameters = dict(wrapper.get_connection_params())
    for name in ("pool", "cursor_factory", "context"):
        parameters.pop(name, None)
    return {**parameters, "autocommit": True, "application_name": "saga wake"}


_hub: Hub | None = None
_hub_lock = threading.Lock()


def hub() -> Hub:
    """The hub of this process. After a fork the child gets its own, with its own connection."""
    global _hub
    found = _hub
    if found is not None and found.pid == os.getpid():
        return found
    with _hub_lock:
        if _hub is None or _hub.pid != os.getpid():
            _hub = Hub()
        return _hub


def _forget_after_fork() -> None:
    # The lock may have been held by a thread that does not exist in the child.
    global _hub, _hub_lock
    _hub, _hub_lock = None, threading.Lock()


os.register_at_fork(after_in_child=_forget_after_fork)


@contextmanager
def watching(*keys: Key) -> Iterator[Watch]:
    """Register for sagas or steps (their UUIDs) for as long as the block lasts."""
    watch, room = Watch(keys), hub()
    room.register(watch)
    try:
        yield watch
    finally:
        room.unregister(watch)


def wait_until(
    keys: Iterable[Key], look: Callable[[], Found | None], seconds: float
) -> Found | None:
    """Register for `keys`, then look, then sleep until told; None when `seconds` are over."""
    with watching(*keys) as watch:
        return watch.wait(look, seconds)
