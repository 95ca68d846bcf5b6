"""Threads that come with work of one kind while another is at it are led by one of them.

As a database commits in groups: whoever comes first works at once, alone; who comes meanwhile
waits, and the first of these does the work of all. Nobody waits to be gathered who need not wait,
and nobody waits long for one who is held up.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from typing import Generic, TypeVar

Work = TypeVar("Work")


class _Place(Generic[Work]):
    """A thread that came: its work, and whom it leads once it is called."""

    def __init__(self, work: Work, key: Hashable) -> None:
        self.work = work
        self.key = key
        # Whether it can be led, or lead others.
        self.is_ready = False
        self.called = threading.Event()
        self.led: list[_Place[Work]] = []


class Gathering(Generic[Work]):
    """Who leads, and who waits. At most `most` are led together, and no two of one key.

    Who has waited for `patience_s` without being called leads, whatever the leader is at.
    """

    def __init__(self, *, most: int, patience_s: float) -> None:
        self._most = most
        self._patience_s = patience_s
        self._lock = threading.Lock()
        self._waiting: list[_Place[Work]] = []
        self._leader: _Place[Work] | None = None
        self._since = 0.0

    @contextmanager
    def turn(
        self, work: Work, *, key: Hashable, ready: Callable[[], bool] = lambda: True
    ) -> Iterator[list[Work]]:
        """The work that this thread is to do now, its own first; none when another has done it.

        Who has to wait makes itself `ready` meanwhile, in its own thread and time: False, and it
        works alone at once. At the end of the block those whose work it was go on, and so does the
        next leader.
        """
        place = _Place(work, key)
        led = self._come(place, ready)
        try:
            yield [one.work for one in led]
        finally:
            self._go(place, led)

    def _come(self, place: _Place[Work], ready: Callable[[], bool]) -> list[_Place[Work]]:
        with self._lock:
            if not self._is_led():
                return self._lead(place)
            self._waiting.append(place)
        try:
            is_ready = ready()
            with self._lock:
                place.is_ready = True
                if not is_ready:
                    self._waiting.remove(place)
                    return [place]
                if not self._is_led():
                    return self._lead(place)
            if not place.called.wait(self._patience_s):
                with self._lock:
                    if place in self._waiting:
                        return self._lead(place)
                # Another has begun with it meanwhile, and says when it has ended.
                place.called.wait()
        except BaseException:
            self._leave(place)
            raise
        return place.led

    def _is_led(self) -> bool:
        return self._leader is not None and time.monotonic() - self._since <= self._patience_s

    def _lead(self, place: _Place[Work]) -> list[_Place[Work]]:
        """Make a thread the leader of all who can come along. Under the lock.

        Who has only just come leads nobody: the others would wait until it is ready.
        """
        self._leader, self._since = place, time.monotonic()
        led, left, keys = [place], [], {place.key}
        for one in self._waiting:
            if one is place:
                continue
            fits = place.is_ready and one.is_ready and one.key not in keys
            if fits and len(led) < self._most:
                led.append(one)
                keys.add(one.key)
            else:
                left.append(one)
        self._waiting = left
        return led

    def _go(self, place: _Place[Work], led: list[_Place[Work]]) -> None:
        for one in led[1:]:
            one.called.set()
        with self._lock:
            if self._leader is not place:
                return
            self._leader = None
            following = next((one for one in self._waiting if one.is_ready), None)
            if following is not None:
                following.led = self._lead(following)
                following.called.set()

    def _leave(self, place: _Place[Work]) -> None:
        """Whose thread ends here is waited for by nobody."""
        with self._lock:
            if place in self._waiting:
                self._waiting.remove(place)
        if place.led:
            self._go(place, place.led)
