"""The relay: rings for shifts when work waits, and acts on what time brings.

The only module that talks to RQ. Redis may lose everything at any moment: the next turn of
this loop reads from Postgres what is owed, and rings again (design rule 5.3).
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from functools import partial
from typing import Any
from uuid import UUID

import django_rq
import psycopg
from django.conf import settings
from django.db import connection
from redis.exceptions import RedisError
from rq import Callback

from ledger import faultpoints, storage
from ledger.gate import gate
from ledger.listening import LOST, listen, wait_for_notify
from ledger.services import checkpoints, drilling, freezing, shifts, sweeping, telling
from ledger.storage import alone

logger = logging.getLogger(__name__)

QUEUE = "shifts"
# The safety net under NOTIFY: how late a lost notification can make a lone step.
POLL_S = 0.5
# Work that waits this long while shifts live means that they are full, or dead.
FULL_AFTER_S = 0.2
# Between looks while shifts live: soon enough to see that one was killed, or that all are full.
WHILE_SHIFTS_LIVE_S = 0.1
# Sweeps look for leases of seconds and more; a second is exact enough.
SWEEP_EVERY_S = 1.0
ANCHOR_EVERY_S = 60.0


def ring_if_needed() -> bool:
    """Ring for one more shift when rows wait and no live one takes them; True when it rang."""
    waiting = shifts.waiting()
    live = shifts.live()
    if not waiting.rows:
        return _ring_for_drill(live)
    if live.rung or live.alive >= settings.SAGA_SHIFTS + live_dead_allowance():
        return False
    if live.alive and waiting.age_s < FULL_AFTER_S:
        return False
    rung = shifts.ring_row()
    faultpoints.reached("P5")
    ring(rung)
    faultpoints.reached("P6")
    return True


def _ring_for_drill(live: Any) -> bool:
    """A shift that lives looks for drills itself; a drill alone wakes one and no more."""
    if live.alive or live.rung or not drilling.waits():
        return False
    ring(shifts.ring_row())
    return True


def live_dead_allowance() -> int:
    """A killed worker's shift looks alive until its lease ends; its successor must not wait."""
    return settings.SAGA_SHIFTS


def ring(shift: UUID) -> None:
    """Put one job on the queue. It carries a name and nothing else; RQ forgets it by itself."""
    django_rq.get_queue(QUEUE).enqueue(
        "ledger.jobs.shift",
        str(shift),
        job_timeout=-1,
        ttl=int(settings.SAGA_RING_GRACE_S) + 1,
        result_ttl=0,
        failure_ttl=3600,
        on_failure=Callback("ledger.jobs.failed"),
    )


def sweep() -> int:
    """Leases that ran out, lost looks, freezes and requests whose time is over.

    One bad row stops no other.
    """
    changed = 0
    for attempt in sweeping.expired_attempts():
        changed += alone(partial(sweeping.expire_attempt, attempt))
    changed += alone(sweeping.return_lost_looks)
    for freeze in freezing.expired():
        changed += alone(partial(freezing.lift, freeze, actor="clock"))
    changed += alone(drilling.give_up)
    changed += alone(gate().sweep)
    changed += alone(telling.spread_sagas)
    return changed


def run_once() -> int:
    """One full turn: sweep, then ring. The number of things that changed."""
    changed = sweep()
    return changed + ring_if_needed()


def run_forever(is_stopping: Callable[[], bool]) -> None:
    """The relay's loop. As many relays as you like may run at once."""
    turn = RelayLoop()
    while not is_stopping():
        try:
            turn.turn()
        except (*storage.AWAY, *LOST) as error:
            logger.warning("the database did not answer (%s); trying again", error)
            turn.forget_connections()
            time.sleep(POLL_S)
        except RedisError as error:
            logger.warning("Redis did not answer (%s); the outbox still knows", error)
            time.sleep(POLL_S)


class RelayLoop:
    """What a relay remembers between turns: nothing that it could not do without."""

    def __init__(self) -> None:
        self._ears: psycopg.Connection | None = None
        self._next_sweep = 0.0
        self._next_anchor = time.monotonic() + ANCHOR_EVERY_S

    def turn(self) -> None:
        """Sweep when it is time, ring when it is needed, then listen."""
        now = time.monotonic()
        if now >= self._next_sweep:
            self._next_sweep = now + SWEEP_EVERY_S
            sweep()
        if now >= self._next_anchor:
            self._next_anchor = now + ANCHOR_EVERY_S
            alone(checkpoints.anchor)
            alone(sweeping.purge_messages)
        ring_if_needed()
        if shifts.live().alive:
            # A live shift hears the same NOTIFY. Postgres wakes every session that listens, so
            # two that listen for one step would only take each other's processor.
            self._stop_listening()
            time.sleep(WHILE_SHIFTS_LIVE_S)
        elif self._ears is None:
            # What was sent before is not heard: look once more before waiting.
            self._ears = listen("ledger_outbox")
        else:
            wait_for_notify(self._ears, POLL_S)
            faultpoints.reached("P4")

    def forget_connections(self) -> None:
        """After a lost connection: start over with new ones."""
        connection.close()
        self._stop_listening()

    def _stop_listening(self) -> None:
        if self._ears is not None:
            self._ears.close()
            self._ears = None
