"""Whatever can happen to a running console, at random, to its own processes only."""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import psutil
import psycopg
import redis

from saga_console.home import Home

# Past the lease of a two-second tool (7 s), so that others have found out before it wakes.
STOPPED_S = (8.5, 11.0)
# Between two blows. Longer than a restart takes, so that work is done in between.
EVERY_S = (2.0, 7.0)


@dataclass
class Havoc:
    """Blows at a console in this home, each told with its time. `up` is the supervisor's pid."""

    home: Home
    up: int
    dice: random.Random
    blows: list[tuple[float, str]] = field(default_factory=list)
    failed: Counter[str] = field(default_factory=Counter)
    stopped: dict[int, float] = field(default_factory=dict)

    @property
    def kinds(self) -> dict[str, tuple[float, Callable[[], bool]]]:
        """Name, how often beside the others, and what it does; False when it could not."""
        return {
            "kill a worker": (4, lambda: self._signal("worker", signal.SIGKILL, at_most=1)),
            "kill every worker": (1, lambda: self._signal("worker", signal.SIGKILL)),
            "kill the relay": (2, lambda: self._signal("relay", signal.SIGKILL)),
            "kill the web": (1.5, lambda: self._signal("web", signal.SIGKILL)),
            "stop a worker past its lease": (3, self._stop_a_worker),
            "stop every worker past its lease": (0.5, self._stop_every_worker),
            "FLUSHALL": (2, self._flush),
            "cut Postgres connections": (3, self._cut),
            "restart Postgres": (0.7, lambda: self._server("postgres", signal.SIGINT)),
            "kill Postgres": (0.7, lambda: self._server("postgres", signal.SIGKILL)),
            "kill a Postgres backend": (0.7, self._kill_backend),
            "kill Valkey": (1, lambda: self._server("valkey", signal.SIGKILL)),
            "kill a keeper": (0.5, self._keeper),
        }

    def run(self, is_over: Callable[[], bool]) -> None:
        """Blow after blow until it is over; then everybody who was stopped goes on."""
        kinds = self.kinds
        names, weights = list(kinds), [weight for weight, _ in kinds.values()]
        while not is_over():
            self._nap(self.dice.uniform(*EVERY_S), is_over)
            (name,) = self.dice.choices(names, weights)
            at = time.time()
            try:
                struck = kinds[name][1]()
            except (OSError, psycopg.Error, redis.RedisError, psutil.Error):
                struck = False
            if struck:
                self.blows.append((at, name))
            else:
                self.failed[name] += 1
        self._wake(everybody=True)

    def _nap(self, seconds: float, is_over: Callable[[], bool]) -> None:
        until = time.monotonic() + seconds
        while time.monotonic() < until and not is_over():
            self._wake()
            time.sleep(0.1)

    def children(self, kind: str) -> list[int]:
        """Pids of the supervisor's own children of one kind."""
        found = []
        for pid in Path(f"/proc/{self.up}/task/{self.up}/children").read_text("ascii").split():
            with suppress(OSError):
                env = Path(f"/proc/{pid}/environ").read_bytes()
                if f"SAGA_APPLICATION_NAME=saga-{kind}".encode() in env:
                    found.append(int(pid))
        return found

    def _signal(self, kind: str, number: signal.Signals, at_most: int = 99) -> bool:
        found = self.children(kind)
        self.dice.shuffle(found)
        for pid in found[:at_most]:
            os.kill(pid, number)
            self.stopped.pop(pid, None)
        return bool(found)

    def _stop(self, pids: list[int]) -> bool:
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)
            self.stopped[pid] = time.monotonic() + self.dice.uniform(*STOPPED_S)
        return bool(pids)

    def _stop_a_worker(self) -> bool:
        awake = [pid for pid in self.children("worker") if pid not in self.stopped]
        return self._stop(self.dice.sample(awake, min(1, len(awake))))

    def _stop_every_worker(self) -> bool:
        return self._stop([pid for pid in self.children("worker") if pid not in self.stopped])

    def _wake(self, *, everybody: bool = False) -> None:
        for pid, until in list(self.stopped.items()):
            if everybody or time.monotonic() > until:
                del self.stopped[pid]
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGCONT)

    def _flush(self) -> bool:
        with redis.Redis.from_url(self.home.redis_url) as client:
            client.flushall()
        return True

    def _sql(self, statement: str) -> list[tuple[int]]:
        url = self.home.database_url_as("postgres")
        with psycopg.connect(url, autocommit=True, connect_timeout=2) as connection:
            return connection.execute(statement).fetchall()

    def _cut(self) -> bool:
        """About half of the console's connections, wherever they are in a transaction."""
        cut = self._sql(
            "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity "
            "WHERE usename = 'saga' AND random() < 0.5"
        )
        return cut[0][0] > 0

    def _kill_backend(self) -> bool:
        """Postgres takes a killed backend for a crash: it ends every other and recovers."""
        found = self._sql("SELECT pid FROM pg_stat_activity WHERE usename = 'saga' LIMIT 1")
        for (pid,) in found:
            os.kill(pid, signal.SIGKILL)
        return bool(found)

    def _server(self, name: str, number: signal.Signals) -> bool:
        file = {"postgres": "postmaster.pid", "valkey": "valkey.pid"}[name]
        pid = (self.home.root / name / file).read_text(encoding="utf-8").split()[0]
        os.kill(int(pid), number)
        return True

    def _keeper(self) -> bool:
        """The parent of one server; the kernel then tells the server to stop."""
        mine = [
            process.pid
            for process in psutil.process_iter(["cmdline"])
            if "saga_console.keeper" in (words := process.info["cmdline"] or [])
            and str(self.home.root) in words
        ]
        for pid in self.dice.sample(mine, min(1, len(mine))):
            os.kill(pid, signal.SIGKILL)
        return bool(mine)


def in_a_thread(work: Callable[[], None]) -> threading.Thread:
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    return thread
