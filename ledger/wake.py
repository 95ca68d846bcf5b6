"""The waiting room: one LISTEN for a whole process, and every waiter woken by it.

A trigger notifies `ledger_finished` with "<saga uuid> <step uuid>" when a step reaches an
end or gets stuck (ledger/walls.py). Being told is a doorbell, never the truth: whoever is
woken looks at the database, and looks every `SAFETY_NET_S` even when nothing rings. Where many
are woken at once, the listener looks for all of them first (`Watch.brought`).

A waiter must register before it looks, or before it asks for the work at all. Then no
notification can fall between the look and the sleep:

    with watching(saga_id) as watch:
        answer = propose(...)
        step = watch.wait(look, 10.0, about=answer.step, look_first=False)
"""

from __future__ import annotations

import logging
import os
import select
import selectors
import socket
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar
from uuid import UUID

import psycopg

from ledger.listening import heard, listen

CHANNEL = "ledger_finished"
# A lost notification costs at most this; a poll of one row a second and waiter is cheap.
SAFETY_NET_S = 1.0
# A connection that died without a word is found out at the latest after this.
SILENCE_S = 20.0
# Postgres restarts in a second or two; more than that is an outage, and needs no hurry.
RECONNECT_S = (0.1, 0.5, 1.0, 5.0)
# For so many who are woken by one stroke, one reads: their rows in one statement cost what one did.
MANY = 2

_NOTHING: Mapping[str, Any] = {}

log = logging.getLogger(__name__)
Found = TypeVar("Found")
Key = UUID | str
# Reads what is behind several keys at once, on the listener's own connection. A key of which
# nothing is found is not in the mapping.
Reader = Callable[[psycopg.Connection[Any], Sequence[str]], Mapping[str, Any]]


class Watch:
    """One waiter: what it has been told since it registered.

    With a `reader`, what it waits for may be read for it as the bell rings: see `brought`.
    """

    def __init__(self, keys: Iterable[Key], reader: Reader | None = None) -> None:
        self.keys = {str(key) for key in keys}
        self.reader = reader
        # What `wait` waits for, and what was read of it.
        self.about: str | None = None
        self._brought: Any = None
        self._bell = threading.Event()
        self._lock = threading.Lock()
        self._told: set[str] = set()
        # Set when notifications may have been missed: then only looking helps.
        self._blind = False

    def tell(self, keys: Iterable[str], brought: Mapping[str, Any] = _NOTHING) -> None:
        with self._lock:
            self._brought = brought.get(self.about or "", self._brought)
            self._told.update(keys)
            self._bell.set()

    def brought(self) -> Any:
        """What `reader` has found since the bell rang, to be had once; None: look yourself."""
        with self._lock:
            found, self._brought = self._brought, None
        return found

    def look_yourself(self) -> None:
        with self._lock:
            self._blind = True
            self._bell.set()

    def follow(self, key: Key) -> None:
        """Listen for one more saga or step, from now on: look before sleeping."""
        hub().follow(self, str(key))
        self.look_yourself()

    def rings_within(self, seconds: float, *, about: Key) -> bool:
        """Whether `about` is told of within `seconds`; it is left for `wait` to hear."""
        deadline = time.monotonic() + seconds
        while self._bell.wait(max(0.0, deadline - time.monotonic())):
            with self._lock:
                if self._blind or str(about) in self._told:
                    return True
                self._told.clear()
                self._bell.clear()
        return False

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
        wanted = self.about = None if about is None else str(about)
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
        self._lock = threading.Lock()
        self._watches: dict[str, set[Watch]] = {}
        self._thread: threading.Thread | None = None
        self.listening = threading.Event()
        # A byte here is the end: it also ends a listener that has not connected yet.
        self._stop, self._stopping = socket.socketpair()

    def register(self, watch: Watch) -> None:
        with self._lock:
            for key in watch.keys:
                self._watches.setdefault(key, set()).add(watch)
            if self._thread is None or not self._thread.is_alive():
                self._thread = threading.Thread(target=self._run, name="wake", daemon=True)
                self._thread.start()
        if not self.listening.is_set():
            watch.look_yourself()

    def follow(self, watch: Watch, key: str) -> None:
        with self._lock:
            watch.keys.add(key)
            self._watches.setdefault(key, set()).add(watch)

    def unregister(self, watch: Watch) -> None:
        with self._lock:
            for key in watch.keys:
                waiting = self._watches.get(key, set())
                waiting.discard(watch)
                if not waiting:
                    self._watches.pop(key, None)

    def ring(self, said: Sequence[str], ears: psycopg.Connection[Any]) -> None:
        """Wake whoever waits for a key in one of these payloads, and read for them on `ears`."""
        with self._lock:
            concerned = [
                (watch, keys)
                for keys in map(str.split, said)
                for watch in {watch for key in keys for watch in self._watches.get(key, ())}
            ]
        brought: dict[str, Any] = {}
        for reader, wanted in _wanted(concerned).items():
            brought |= _read(reader, ears, wanted)
        for watch, keys in concerned:
            watch.tell(keys, brought)

    def _wake_all(self) -> None:
        with self._lock:
            everybody = {watch for waiting in self._watches.values() for watch in waiting}
        for watch in everybody:
            watch.look_yourself()

    def close(self) -> None:
        """Stop listening and end the connection. Whoever still waits looks for himself."""
        self._stop.send(b".")
        if self._thread is not None:
            self._thread.join(5)

    def _run(self) -> None:
        failures = 0
        while not self._is_stopping(0):
            try:
                with listen(CHANNEL) as connection:
                    self.listening.set()
                    failures = 0
                    # Whatever was said while nobody listened is lost: look.
                    self._wake_all()
                    self._listen(connection)
            except (psycopg.Error, OSError) as error:
                pause = RECONNECT_S[min(failures, len(RECONNECT_S) - 1)]
                failures += 1
                log.warning("not listening for finished steps, again in %s s: %s", pause, error)
                self._is_stopping(pause)
            finally:
                self.listening.clear()

    def _listen(self, connection: psycopg.Connection[Any]) -> None:
        with selectors.DefaultSelector() as ears:
            ears.register(connection, selectors.EVENT_READ)
            ears.register(self._stopping, selectors.EVENT_READ)
            while True:
                ready = {key.fileobj for key, _ in ears.select(SILENCE_S)}
                if self._stopping in ready:
                    return
                if not ready:
                    connection.execute("SELECT 1")
                    # What came with its answer, psycopg has kept.
                    self.ring([kept.payload for kept in connection.notifies(timeout=0)], connection)
                # Until nothing was said while the last was being read for.
                while said := list(heard(connection)):
                    self.ring(said, connection)

    def _is_stopping(self, seconds: float) -> bool:
        """Whether it is over, at the latest after `seconds`."""
        return bool(select.select([self._stopping], [], [], seconds)[0])


def _wanted(concerned: Iterable[tuple[Watch, Sequence[str]]]) -> dict[Reader, set[str]]:
    """What each reader is to read: what its watches wait for, and were told of."""
    wanted: dict[Reader, set[str]] = {}
    for watch, keys in concerned:
        if watch.reader is not None and watch.about is not None and watch.about in keys:
            wanted.setdefault(watch.reader, set()).add(watch.about)
    return wanted


def _read(reader: Reader, ears: psycopg.Connection[Any], wanted: set[str]) -> Mapping[str, Any]:
    """What is behind these keys, if there are `MANY`. A lost connection is `heard`."""
    if len(wanted) < MANY:
        return {}
    try:
        return reader(ears, sorted(wanted))
    except Exception as error:
        log.warning("what %d wait for could not be read for them: %s", len(wanted), error)
        return {}


_hubs: dict[int, Hub] = {}


def hub() -> Hub:
    """The hub of this process. After a fork the child gets its own, with its own connection."""
    pid = os.getpid()
    # setdefault is atomic, and a hub that loses the race has done nothing yet.
    return _hubs.get(pid) or _hubs.setdefault(pid, Hub())


def close() -> None:
    """End this process's listener, so that nothing of it stays in the database."""
    closing = _hubs.pop(os.getpid(), None)
    if closing is not None:
        closing.close()


@contextmanager
def watching(*keys: Key, reader: Reader | None = None) -> Iterator[Watch]:
    """Register for sagas or steps (their UUIDs) for as long as the block lasts."""
    watch, room = Watch(keys, reader), hub()
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
