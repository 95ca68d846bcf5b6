"""A worker's shift: drain the outbox, side by side, for as long as there is work.

One thread talks to the database; the others only call tools. The loop wakes on NOTIFY or
on a call that came back, and polls as a safety net (design rules 5.3 and 5.4).
"""

from __future__ import annotations

import logging
import os
import queue
import select
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from uuid import UUID

from django.conf import settings
from django.db import connection

from ledger import faultpoints, storage
from ledger.drills import DrillHand
from ledger.listening import LOST, EarsAtWork
from ledger.outcomes import Failed, Outcome, Sighting
from ledger.services import shifts
from ledger.services.assignments import Assignment
from ledger.services.claiming import claim
from ledger.services.recording import Finished, record

logger = logging.getLogger(__name__)

# Retries and looks fall due without a NOTIFY; a quarter second late is not late for them.
POLL_S = 0.25
# Reconnecting to Postgres: often enough to be back within a second of its return.
RECONNECT_S = 0.5
# A call must start well within its lease, or it is not made at all (case C108).
START_MARGIN = 0.5

# Set by the worker's signal handler: finish what runs, take nothing new.
stopping = threading.Event()


class ShiftLoop:
    """The life of one shift. `run()` returns the number of calls made."""

    def __init__(self, shift: UUID) -> None:
        self.shift = shift
        self.threads = settings.SAGA_SHIFT_THREADS
        self.ran = 0
        self._running: dict[UUID, Assignment] = {}
        self._finished: queue.SimpleQueue[Finished] = queue.SimpleQueue()
        self._unwritten: list[Finished] = []
        self._bell, self._rope = socket.socketpair()
        self._bell.setblocking(False)
        self._rope.setblocking(False)
        self._ears = EarsAtWork("ledger_outbox")
        self._drills = DrillHand(shift, self._stroke)
        self._next_beat = 0.0
        # Whether there may be something to take: after a NOTIFY, a poll, or work that left more.
        self._hungry = True
        self._began = self._quiet_since = time.monotonic()

    def run(self) -> int:
        """Work until there has been nothing to do for the linger time, or the limit is reached."""
        if not shifts.begin(self.shift, f"{socket.gethostname()}:{os.getpid()}", self.threads):
            return 0
        faultpoints.reached("P9")
        with closing(self._bell), closing(self._rope), closing(self._ears):
            with ThreadPoolExecutor(self.threads, thread_name_prefix="call") as pool:
                while not self._is_over():
                    try:
                        self._turn(pool)
                    except (*storage.AWAY, *LOST):
                        logger.exception("the database did not answer; trying again")
                        self._reconnect()
            shifts.end(self.shift, self.ran)
        return self.ran

    def _is_over(self) -> bool:
        if self._running or self._unwritten or self._drills.is_busy:
            return False
        lingered = time.monotonic() - self._quiet_since > settings.SAGA_SHIFT_LINGER_S
        return lingered or self._is_closing()

    def _is_closing(self) -> bool:
        """Told to stop, or here for long enough: what runs is finished, nothing new is taken."""
        stayed = time.monotonic() - self._began
        return stopping.is_set() or stayed > settings.SAGA_SHIFT_LIMIT_S

    def _turn(self, pool: ThreadPoolExecutor) -> None:
        """One round: write what came back, take what fits, wait for the next thing."""
        self._beat()
        self._write_finished()
        self._drills.turn(takes_new=not self._is_closing())
        if self._hungry and not self._is_closing():
            self._take(pool)
        self._wait()

    def _write_finished(self) -> None:
        while True:
            try:
                self._unwritten.append(self._finished.get_nowait())
            except queue.Empty:
                break
        if self._unwritten:
            self._record(self._unwritten)
            for found in self._unwritten:
                self._running.pop(found.assignment.token, None)
            self._unwritten = []
            self._quiet_since = time.monotonic()

    def _record(self, finished: list[Finished]) -> None:
        """Write a batch; if the batch is refused, each alone, so that one cannot stop the rest."""
        try:
            self._hungry |= record(self.shift, finished)
            faultpoints.reached("P14", finished[0].assignment.direction)
        except Exception as error:
            if storage.is_away(error):
                raise
            if len(finished) == 1:
                logger.exception("an outcome of step %s was refused", finished[0].assignment.step)
                return
            for found in finished:
                self._record([found])

    def _take(self, pool: ThreadPoolExecutor) -> None:
        """Claim what can start at once, and start it. A full house stays hungry."""
        room = self.threads - len(self._running)
        if room <= 0:
            return
        claimed_at = time.monotonic()
        assignments = self._claim(room)
        self._hungry = len(assignments) == room
        for assignment in assignments:
            self._running[assignment.token] = assignment
            pool.submit(self._call, assignment, claimed_at + assignment.lease_s * START_MARGIN)
        self.ran += len(assignments)

    def _claim(self, room: int) -> list[Assignment]:
        """Claim many; if the batch is refused, one; and a message that no claim can take is set
        aside for a while, so that one bad row at the head never stops the others (case C47)."""
        try:
            return claim(self.shift, room)
        except Exception as error:
            if storage.is_away(error):
                raise
            logger.exception("a batch of claims was refused")
        try:
            return claim(self.shift, 1)
        except Exception as error:
            if storage.is_away(error):
                raise
            shifts.set_aside(storage.said(error))
            return []

    def _call(self, assignment: Assignment, start_by: float) -> None:
        """In a thread of its own: the one place where the outside world is touched."""
        outcome: Outcome | Sighting
        faultpoints.reached("P10", assignment.direction)
        if time.monotonic() > start_by:
            outcome = Failed("the worker was too late to start it", retryable=True)
        elif assignment.attempt is None:
            outcome = assignment.tool.probe(assignment.call)
        else:
            outcome = assignment.tool.run(assignment.call)
            faultpoints.reached("P12", assignment.direction)
        self._finished.put(Finished(assignment, outcome))
        self._stroke()

    def _stroke(self) -> None:
        """Wake the loop from another thread."""
        try:
            self._rope.send(b".")
        except BlockingIOError:
            pass  # the bell is full of unheard strokes: it will be heard

    def _wait(self) -> None:
        """Until a call comes back, a NOTIFY is heard, or the poll is due."""
        if self._ears.begin() or self._ears.rang():
            self._hungry = True
            return
        has_room = len(self._running) < self.threads
        more_at_once = self._hungry and has_room and not self._is_closing()
        patience = 0.0 if more_at_once else POLL_S
        bell, ears = self._bell.fileno(), self._ears.fileno()
        heard, _, _ = select.select([bell, ears], [], [], patience)
        if bell in heard:
            self._bell.recv(4096)
        # A call that came back leaves nothing new by itself: `record` says what it left.
        self._hungry |= not heard or (ears in heard and self._ears.rang(reads=True))

    def _beat(self) -> None:
        now = time.monotonic()
        if now < self._next_beat:
            return
        held = [
            {"id": str(a.attempt), "token": str(a.token), "lease_s": a.lease_s}
            for a in self._running.values()
            if a.attempt
        ]
        shifts.beat(self.shift, self.threads - len(self._running), self.ran, held)
        shortest = min([settings.SAGA_SHIFT_LEASE_S, settings.SAGA_LEASE_S])
        self._next_beat = now + shortest / shifts.BEATS_PER_LEASE

    def _reconnect(self) -> None:
        self._ears.close()
        connection.close()
        time.sleep(RECONNECT_S)
