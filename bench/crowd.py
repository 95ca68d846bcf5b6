"""Many callers at once: a few processes of several threads each, started together.

Two processes, so that the interpreter lock of one client is not what is measured.
"""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from multiprocessing.synchronize import Barrier

PROCESSES = 2
# Starting an interpreter takes a second on a busy machine; nobody begins before all are there.
_ALL_THERE_WITHIN_S = 30.0

# What one caller does: its number and the time.monotonic() at which to stop, to a count.
Caller = Callable[[int, float], int]


@dataclass(frozen=True, slots=True)
class Took:
    """What a crowd did: `count` things in `seconds`, for `cpu_s` of the clients' own time."""

    count: int
    seconds: float
    cpu_s: float

    @property
    def rate(self) -> float:
        """Things per second."""
        return self.count / self.seconds

    @property
    def client_ms(self) -> float:
        """What one thing cost the client, in ms of CPU."""
        return 1000 * self.cpu_s / max(1, self.count)


def together(caller: Caller, callers: int, seconds: float) -> Took:
    """Run `caller` (picklable) so many times side by side. Raises what any of them raised."""
    shares = [range(first, callers, PROCESSES) for first in range(min(PROCESSES, callers))]
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(
        len(shares),
        mp_context=context,
        initializer=_meet_at,
        initargs=(context.Barrier(len(shares)),),
    ) as pool:
        done = list(pool.map(partial(_share, caller, seconds), shares))
    ended = max(took.seconds for took in done)
    return Took(sum(took.count for took in done), ended, sum(took.cpu_s for took in done))


# A barrier can be given to a process at its birth only, so each keeps its own here.
_start: list[Barrier] = []


def _meet_at(barrier: Barrier) -> None:
    _start[:] = [barrier]


def _share(caller: Caller, seconds: float, numbers: range) -> Took:
    """One process's callers. Raises BrokenBarrierError when another process does not come."""
    _start[0].wait(_ALL_THERE_WITHIN_S)
    begin, cpu = time.monotonic(), time.process_time()
    with ThreadPoolExecutor(len(numbers)) as pool:
        counts = list(pool.map(lambda number: caller(number, begin + seconds), numbers))
    return Took(sum(counts), time.monotonic() - begin, time.process_time() - cpu)
