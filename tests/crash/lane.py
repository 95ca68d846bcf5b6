"""One whole console for crash rows, as the processes that it is made of.

Each process has cables of its own to Postgres and Redis, and is started again at once when it
dies, as a supervisor does (`up` waits longer from death to death; see docs/recovery.md).
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import httpx
import psycopg
import redis
from psycopg.rows import dict_row

from saga_console.home import BASE_DIR, Home
from saga_console.servers import ServerUse
from tests.crash.cables import Cable
from tests.crash.program import Caught, Program
from tests.crash.target import Target
from tests.crash.tools import tools_file
from tests.running import clean_env, eventually, free_port

# A lease is max(1 s, timeout 1 s + margin 1 s), so 2 s: short rows, and the same rules.
QUICK = {
    "SAGA_LEASE_S": "1",
    "SAGA_LEASE_MARGIN_S": "1",
    "SAGA_PROBE_APART_S": "0.2",
    "SAGA_SHIFT_LEASE_S": "1",
    "SAGA_RING_GRACE_S": "1",
    "SAGA_SHIFT_LINGER_S": "0.3",
    "SAGA_SHIFTS": "2",
    "SAGA_LOCK_TIMEOUT_MS": "2000",
    "SAGA_IDLE_TIMEOUT_MS": "4000",
    "SAGA_STATIC_FROM_SOURCE": "1",
    "LOG_LEVEL": "INFO",
}
PASSWORD = "correct horse battery staple"
# Tables, an agent and the people: what prepare_console, agent_token and operator do.
FURNISH = f"""
from django.core.management import call_command
from ledger.services import tokens
call_command("migrate", verbosity=0)
tokens.seat_operator("oskar", group="oncall", password="{PASSWORD}")
olga = tokens.seat_operator("olga", group="approvers", password=None)
print(tokens.issue_agent_token("crasher"), tokens.issue_operator_token(olga))
"""
WORKERS = ("worker-1", "worker-2")
# A lease of 2 s, looks, backoff, and a process that starts on a busy machine.
PATIENCE_S = 60.0


def _answers(browser: httpx.Client) -> bool:
    with suppress(httpx.TransportError):
        return browser.get("/healthz").status_code == 200
    return False


class Lane:
    """Servers, processes, target and the folder of fault points of one row at a time."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.home = Home(folder / "home")
        self.faults = folder / "faults"
        self.faults.mkdir(mode=0o700, parents=True)
        self.target = Target()
        # Tools reach the target through a cable too, which each row may cut.
        self.tools = folder / "tools.toml"
        self.tools.write_text(tools_file(self.target.url), encoding="utf-8")
        self.home.create()
        self.uses = [ServerUse(self.home, name) for name in ("postgres", "valkey")]
        for use in self.uses:
            use.acquire()
        self.cables: dict[str, Cable] = {}
        self.bells: dict[str, Cable] = {}
        self.programs: dict[str, Program] = {}
        self.port = free_port()
        # One command for all of it: on a busy machine each costs seconds.
        self.agent, self.person = self.manage("shell", "-c", FURNISH).split()[-2:]
        self._tending = True
        self._add("web", *self._web())
        self._add("relay", sys.executable, "manage.py", "relay")
        for name in WORKERS:
            self._add(name, sys.executable, "manage.py", "worker")
        self._thread = threading.Thread(target=self._tend, daemon=True)
        self._thread.start()

    def _web(self) -> list[str]:
        argv = [sys.executable, "-m", "granian", "--interface", "wsgi", "--http", "1", "--no-ws"]
        argv += ["--host", "127.0.0.1", "--port", str(self.port), "--workers", "1"]
        argv += ["--blocking-threads", "16", "--log-level", "error"]
        return [*argv, "saga_console.wsgi:application"]

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def env(self, name: str) -> dict[str, str]:
        """What a process of this lane is started with."""
        cable, bell = self.cables[name], self.bells[name]
        return clean_env(
            self.home.root,
            **QUICK,
            DATABASE_URL=f"postgresql://saga@127.0.0.1:{cable.port}/saga?sslmode=disable",
            REDIS_URL=f"redis://127.0.0.1:{bell.port}/0",
            SAGA_TOOLS=str(self.tools),
            SAGA_FAULTS=str(self.faults),
            SAGA_APPLICATION_NAME=f"saga-{name}",
        )

    def _add(self, name: str, *argv: str) -> Program:
        self.cables[name] = Cable(str(self.home.sockets / ".s.PGSQL.5432"))
        self.bells[name] = Cable(str(self.home.sockets / "valkey.sock"))
        log = self.folder / f"{name}.log"
        self.programs[name] = Program(name, list(argv), self.env(name), log)
        return self.programs[name]

    def _tend(self) -> None:
        while self._tending:
            for program in list(self.programs.values()):
                program.tend()
            time.sleep(0.05)

    def close(self) -> None:
        self._tending = False
        self._thread.join()
        for program in self.programs.values():
            program.end()
        self.target.close()
        for cable in (*self.cables.values(), *self.bells.values()):
            cable.close()
        for use in self.uses:
            use.release()

    # -- commands and servers -------------------------------------------------------------

    def manage(self, *words: str, **more: str) -> str:
        """One management command, straight at the servers; what it prints."""
        env = clean_env(
            self.home.root,
            DATABASE_URL=self.home.database_url,
            REDIS_URL=self.home.redis_url,
            SAGA_TOOLS=str(self.tools),
            **more,
        )
        done = subprocess.run(
            [sys.executable, "manage.py", *words],
            cwd=BASE_DIR,
            env=env,
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout.strip()

    def sign_in(self, name: str) -> httpx.Client:
        """A person's browser without JavaScript, signed in."""
        browser = httpx.Client(base_url=self.url, timeout=15, follow_redirects=True)
        eventually(lambda: _answers(browser), "the web server answers")
        browser.get("/login/")
        form = {"username": name, "password": PASSWORD}
        form["csrfmiddlewaretoken"] = str(browser.cookies.get("csrftoken"))
        answer = browser.post("/login/", data=form, headers={"Referer": f"{self.url}/login/"})
        assert answer.status_code == 200, answer.text
        assert "/login/" not in str(answer.url), "not signed in"
        return browser

    def sql(self, statement: str, *params: Any, role: str = "saga") -> list[dict[str, Any]]:
        """Rows of one statement, not through a cable."""
        url = self.home.database_url_as(role)
        with psycopg.connect(url, autocommit=True, row_factory=dict_row) as connection:
            cursor = connection.execute(statement, params)
            return cursor.fetchall() if cursor.description else []

    def redis(self) -> redis.Redis:
        return redis.Redis.from_url(self.home.redis_url)

    def server_pid(self, name: str) -> int:
        """The pid of this home's own server; 0 while it is not ready."""
        if name == "valkey":
            with suppress(OSError, ValueError):
                return int((self.home.root / "valkey" / "valkey.pid").read_text())
            return 0
        with suppress(OSError):
            lines = (self.home.root / "postgres" / "postmaster.pid").read_text().splitlines()
            return int(lines[0]) if len(lines) >= 8 and lines[7].strip() == "ready" else 0
        return 0

    def kill_pid(self, pid: int) -> None:
        """SIGKILL of a server of this home; 0 is nobody."""
        if pid:
            os.kill(pid, signal.SIGKILL)

    def restart(self, name: str, number: signal.Signals) -> float:
        """End a server; its keeper starts it again. The moment at which it had ended."""
        before = self.server_pid(name)
        os.kill(before, number)
        at = time.monotonic()
        eventually(lambda: self.server_pid(name) not in (0, before), f"{name} is back")
        return at

    def working_on(self, saga: str) -> Program:
        """The worker whose attempt of this saga is out now."""
        found: list[dict[str, Any]] = []

        def is_known() -> bool:
            found[:] = self.sql(
                "SELECT h.worker FROM ledger_attempt a JOIN ledger_shift h ON h.id = a.shift_id "
                "JOIN ledger_step s ON s.id = a.step_id WHERE s.saga_id = %s "
                "AND a.state = 'started'",
                saga,
            )
            return bool(found)

        eventually(is_known, "an attempt is out")
        pid = int(found[0]["worker"].rpartition(":")[2])
        return next(p for p in self.programs.values() if pid in p.pids)

    # -- fault points ---------------------------------------------------------------------

    def arm(self, point: str, about: str = "") -> None:
        (self.faults / (f"{point}.{about}" if about else point)).touch()

    def caught(self, point: str, within_s: float = PATIENCE_S) -> Caught:
        """Wait until a process stands at the point."""
        found: list[Path] = []

        def is_there() -> bool:
            found[:] = list(self.faults.glob(f"{point}.*.here"))
            return bool(found)

        eventually(is_there, f"a process reaches {point}", within_s)
        return Caught(self.programs, found[0])

    def disarm(self) -> None:
        for path in self.faults.iterdir():
            path.unlink(missing_ok=True)

    def quiet(self) -> None:
        """Until nothing is left from the row before: no shift, everybody alive and listening."""
        self.disarm()
        self.target.released.set()
        for cable in (*self.cables.values(), *self.bells.values()):
            cable.severed = cable.stalled = False
            cable.lose = ""
        try:
            eventually(self._is_quiet, "the lane is quiet")
        except AssertionError:
            told = self.sql(
                "SELECT application_name, state, query FROM pg_stat_activity "
                "WHERE application_name LIKE 'saga-%%'"
            )
            alive = {name: sorted(program.pids) for name, program in self.programs.items()}
            raise AssertionError(f"the lane is not quiet: {alive} {told}") from None

    def _is_quiet(self) -> bool:
        with suppress(psycopg.Error):
            listening = self.sql(
                "SELECT application_name FROM pg_stat_activity WHERE query LIKE 'LISTEN%%'"
            )
            live = self.sql(
                "SELECT 1 FROM ledger_shift WHERE ended_at IS NULL "
                "AND lease_until > clock_timestamp()"
            )
            names = {row["application_name"] for row in listening}
            return not live and "saga-relay" in names and self._workers_wait()
        return False

    def _workers_wait(self) -> bool:
        """Whether every worker is up and waits at the queue, as Redis itself sees it."""
        with suppress(redis.RedisError), self.redis() as client:
            waiting = [
                c for c in client.client_list() if c["cmd"] in ("blmove", "brpoplpush", "blpop")
            ]
            return len(waiting) >= len(WORKERS)
        return False

    @contextmanager
    def without(self, *names: str) -> Iterator[None]:
        """These programs are dead meanwhile."""
        for name in names:
            self.programs[name].end()
        try:
            yield
        finally:
            for name in names:
                self.programs[name].wanted = True
