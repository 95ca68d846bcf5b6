"""`manage.py up`: the whole console in one foreground process."""

from __future__ import annotations

import fcntl
import http.client
import os
import socket
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass

from saga_console import environment, parts
from saga_console.children import AtItsEnd, Child
from saga_console.home import BASE_DIR, Home, HomeError
from saga_console.locks import open_lock, try_lock
from saga_console.servers import ServerUse, ensure_servers, release
from saga_console.supervisor import Supervisor, Voice

# One thread per request that may be waiting: `Prefer: wait` blocks its thread.
_WEB_THREADS = 64
# A thread that is put away takes its database connection with it; ten minutes is granian's most.
_WEB_THREAD_IDLE_S = 600
_WEB_GRACE_S = 10
# A stopped console's port is free again within moments of its web server's end.
_PORT_FREE_WITHIN_S = 3.0
_LOOK_AT_SERVERS_S = 1.0
# Long enough for a busy small machine; then somebody should read what was said.
_READY_WITHIN_S = 120.0


# Who listens everywhere is reached here.
_REACHED_BY = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104


def host_of(asked: str) -> str:
    """What to listen on. `localhost` may be either family; one of them is what is printed."""
    return "127.0.0.1" if asked == "localhost" else asked


class CannotStart(RuntimeError):
    """One line that says why, and what to change. Nothing is left running."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What `up` was asked for."""

    host: str
    port: int
    workers: int
    demo: bool = False
    once: bool = False

    @property
    def address(self) -> str:
        """Where a browser on this machine gets to it; one way, because cookies know hosts."""
        shown = _REACHED_BY.get(self.host, self.host)
        return f"http://[{shown}]:{self.port}" if ":" in shown else f"http://{shown}:{self.port}"


def default_workers() -> int:
    """One for each core up to two: a worker runs many steps at once, they wait on the network."""
    return min(2, os.cpu_count() or 1)


@contextmanager
def only_one(home: Home, address: str) -> Iterator[None]:
    """Hold the home. Raises CannotStart, naming who does already."""
    home.create()
    descriptor = open_lock(home.run / "up.lock")
    try:
        if not try_lock(descriptor, fcntl.LOCK_EX):
            holder = os.pread(descriptor, 200, 0).decode(errors="replace").strip()
            raise CannotStart(f"{home.root} is already in use by {holder or 'another console'}")
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"process {os.getpid()}, {address}\n".encode(), 0)
        yield
    finally:
        os.close(descriptor)


def require_free_port(host: str, port: int) -> None:
    """Raises CannotStart when somebody else listens there."""
    deadline = time.monotonic() + _PORT_FREE_WITHIN_S
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    while True:
        with socket.socket(family, socket.SOCK_STREAM) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((host, port))
            except OSError as error:
                if time.monotonic() > deadline:
                    raise CannotStart(
                        f"cannot listen on {host}:{port}: {error.strerror}. "
                        "Choose another with --port or PORT"
                    ) from None
                time.sleep(0.1)
            else:
                return


def web(plan: Plan, env: Mapping[str, str]) -> Child:
    argv = [sys.executable, "-m", "granian", "--interface", "wsgi", "--http", "1", "--no-ws"]
    argv += ["--host", plan.host, "--port", str(plan.port), "--workers", "1"]
    argv += ["--blocking-threads", str(_WEB_THREADS), "--log-level", "error"]
    argv += ["--blocking-threads-idle-timeout", str(_WEB_THREAD_IDLE_S)]
    argv += ["--workers-kill-timeout", str(_WEB_GRACE_S), "saga_console.wsgi:application"]
    return Child("web", argv, _named(env, "web"), grace_s=_WEB_GRACE_S + 5)


def command(
    name: str,
    *words: str,
    env: Mapping[str, str],
    grace_s: float = 10.0,
    at_its_end: AtItsEnd = "restart",
) -> Child:
    """A child that is one of our management commands."""
    argv = [sys.executable, str(BASE_DIR / "manage.py"), *words]
    return Child(name, argv, _named(env, name), grace_s, at_its_end)


# One heap for all threads of a process, which take turns anyway: memory that the one before has
# just used is warm (docs/decisions/0100-one-heap.md). Others' C libraries know no such variable.
_HEAPS = {"MALLOC_ARENA_MAX": "1"}


def _named(env: Mapping[str, str], name: str) -> dict[str, str]:
    """Who is who in pg_stat_activity."""
    named = {"PYTHONUNBUFFERED": "1", "SAGA_APPLICATION_NAME": f"saga-{name}"}
    return {**_HEAPS, **env, **named}


def is_ready(port: int, host: str) -> bool:
    """Whether `/readyz` answers, and not with 503."""
    connection = http.client.HTTPConnection(_REACHED_BY.get(host, host), port, timeout=5)
    with suppress(OSError, http.client.HTTPException):
        connection.request("GET", "/readyz")
        return connection.getresponse().status < http.HTTPStatus.INTERNAL_SERVER_ERROR
    return False


class Console:
    """The running whole, from the lock on the home to the last server's end."""

    def __init__(self, home: Home, plan: Plan) -> None:
        self.home = home
        self.plan = plan
        self.workers = [f"worker-{n}" for n in range(1, plan.workers + 1)]
        self.supervisor = Supervisor(Voice(["saga", "web", "relay", *self.workers, "demo"]))
        self.uses: list[ServerUse] = []
        self._looked_at = 0.0
        self._end_demo: Callable[[], None] = lambda: None

    def run(self) -> int:
        """Everything, until it is told to stop. The exit status."""
        boss = self.supervisor
        with only_one(self.home, self.plan.address), boss.listening():
            try:
                require_free_port(self.plan.host, self.plan.port)
                self._start_servers()
                self._migrate()
                if not boss.is_stopping:
                    self._start_children()
                boss.run(until=self._look_after_servers)
            except (HomeError, parts.UnfitPart) as error:
                raise CannotStart(str(error)) from None
            finally:
                self._stop()
        return boss.exit_status or 0

    def _start_servers(self) -> None:
        self.uses = ensure_servers(self.home)
        database = parts.check_postgres(os.environ["DATABASE_URL"])
        queue = parts.check_redis(os.environ["REDIS_URL"])
        where = f"data in {self.home.root}" if self.uses else "as the environment says"
        self.supervisor.say(f"{database} and {queue}, {where}")

    def _look_after_servers(self) -> bool:
        """Keepers restart servers; who restarts a keeper is us. Never ends the run."""
        if time.monotonic() - self._looked_at > _LOOK_AT_SERVERS_S:
            self._looked_at = time.monotonic()
            for use in self.uses:
                if use.look_after():
                    self.supervisor.say(f"{use.name} had been killed and runs again")
        return False

    def _migrate(self) -> None:
        """In a process of its own, so that this one never holds a database connection."""
        step = command("saga", "prepare_console", env=os.environ, at_its_end="stop")
        self.supervisor.add(step)
        self.supervisor.run()
        if self.supervisor.exit_status:
            raise CannotStart("the database could not be brought up to date (see above)")
        self.supervisor.exit_status = None

    def _start_children(self) -> None:
        env = {"SAGA_URL": self.plan.address, **os.environ, **self._demo_environment()}
        boss = self.supervisor
        boss.add(web(self.plan, env))
        boss.add(command("relay", "relay", env=env))
        grace = environment.number("SAGA_WORKER_GRACE_S", 30, at_least=1)
        for name in self.workers:
            boss.add(command(name, "worker", env=env, grace_s=grace))
        deadline = time.monotonic() + _READY_WITHIN_S
        boss.run(until=lambda: self._is_ready_before(deadline))
        if boss.is_stopping:
            return
        boss.say(f"ready: {self.plan.address}")
        if self.plan.demo or self.plan.once:
            words = ["demo", "--port", str(self.plan.port), *(["--once"] if self.plan.once else [])]
            ends: AtItsEnd = "stop" if self.plan.once else "carry on"
            boss.add(command("demo", *words, env=env, at_its_end=ends))

    def _is_ready_before(self, deadline: float) -> bool:
        if time.monotonic() > deadline:
            raise CannotStart(f"/readyz did not say yes within {_READY_WITHIN_S:.0f} s (see above)")
        return is_ready(self.plan.port, self.plan.host)

    def _demo_environment(self) -> Mapping[str, str]:
        """The demo's targets start before web and workers, which are told where they are."""
        if not (self.plan.demo or self.plan.once):
            return {}
        from saga_console import demo  # noqa: PLC0415  (its packages are the demo's alone)

        self._end_demo = demo.stop
        return demo.prepare(self.home.root)

    def _stop(self) -> None:
        boss = self.supervisor
        if boss.signals and boss.children:
            boss.say("stopping (a second signal kills)")
        by_name = {child.name: child for child in boss.children}
        others = [child for name, child in by_name.items() if name not in {"web", "demo"}]
        groups = [[by_name[name]] for name in ("demo", "web") if name in by_name]
        boss.stop(*groups, others)
        self._end_demo()
        release(self.uses)
        if by_name:
            boss.say("stopped")
