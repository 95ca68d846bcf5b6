"""Processes that answer and sweep at an instant: `python -m tests.lastmoment approve|sweep`.

Each reads one round a line, `[request, digest, end]` (in seconds of the database's clock), waits
for the instant, and writes what came of it, a line a round. Processes, because the threads of
one would take turns, and never really meet.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Iterator
from uuid import UUID

import django

# The click moves towards the end until it misses, and away from it until it hits.
FIRST_LEAD_S = 0.015
CLOSER_S, FARTHER_S = 0.001, 0.002
MOST_LEAD_S = 0.1


def database_ahead() -> float:
    """Seconds that the database's clock is ahead of this process's, by the quickest of some."""
    from ledger import storage

    def look() -> tuple[float, float]:
        before = time.time()
        now = storage.the_row("SELECT extract(epoch FROM clock_timestamp())::float8 AS at").at
        after = time.time()
        return after - before, now - (before + after) / 2

    return min(look() for _ in range(20))[1]


def sleep_until(moment: float) -> None:
    """A moment of this process's clock: asleep for most of the way, awake for the rest."""
    time.sleep(max(0.0, moment - time.time() - 0.002))
    while time.time() < moment:
        pass


def rounds() -> Iterator[tuple[UUID, str, float]]:
    """What is to be answered, with its end by this process's clock.

    Whoever lags behind is no more in any race: what is over already comes after all others.
    """
    ahead, over = database_ahead(), []
    print("ready", flush=True)
    for line in sys.stdin:
        request, digest, end = json.loads(line)
        one = UUID(request), digest, end - ahead
        if time.time() > one[2]:
            over.append(one)
        else:
            yield one
    yield from over


def approve(user_id: str, name: str) -> None:
    """One click a round, so early before its end that it just hits, or just misses."""
    from approvals.services import deciding
    from ledger.bearer import Bearer
    from ledger.errors import SagaError

    person = Bearer(user_id=int(user_id), username=name)

    def click(request: UUID, digest: str) -> str:
        try:
            deciding.approve(person, request, args_digest=digest)
        except SagaError as error:
            return type(error).__name__
        return "approved"

    click(UUID(int=0), "the first click of a process is the slowest")
    lead = FIRST_LEAD_S
    for request, digest, end in rounds():
        sleep_until(end - lead)
        said = click(request, digest)
        print(json.dumps([str(request), said]), flush=True)
        lead += -CLOSER_S if said == "approved" else FARTHER_S
        lead = min(max(lead, 0.0), MOST_LEAD_S)


def sweep() -> None:
    """What a relay does, at the very end of each round."""
    from approvals.gate import Gate

    Gate().sweep()
    for request, _digest, end in rounds():
        sleep_until(end)
        print(json.dumps([str(request), Gate().sweep()]), flush=True)


if __name__ == "__main__":
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "saga_console.settings")
    django.setup()
    {"approve": approve, "sweep": sweep}[sys.argv[1]](*sys.argv[2:])
