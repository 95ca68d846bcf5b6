"""The outside world of the demo: a payment server, a cloud and a mailbox, all third-party.

    World.start(home)   five processes and the fault proxy, each waited for
    world.stop()        all of them

Payment server and cloud are there twice: once as production, and once as the sandbox in which
their tools are drilled.

Ports are kept in `home/ports.json` and taken again at the next start when they are free: a
step that was proposed yesterday carries yesterday's address in its definition.
"""

from __future__ import annotations

import json
import smtplib
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field, fields
from functools import cache
from pathlib import Path
from typing import Self

import httpx

from saga_console.demo.faultproxy import FaultProxy

SERVE = Path(__file__).with_name("serve.py")
LOOPBACK = "127.0.0.1"
PORTS = "ports.json"
# localstripe takes any secret key of this form. It opens nothing but this target.
PAYMENTS_KEY = "sk_test_demo"
SANDBOX_KEY = "sk_test_sandbox"
# moto imports a good part of AWS at its first request: 3 s alone, more when both cores work.
READY_WITHIN_S = 60.0
STOP_WITHIN_S = 5.0


class TargetNotReady(RuntimeError):
    """A target did not start, or did not answer in time."""


@dataclass
class Target:
    """One third-party server in its own process, its output in a log file."""

    name: str
    port: int
    log: Path
    is_ready: Callable[[], bool]
    store: Path | None = None
    _process: subprocess.Popen[bytes] | None = field(default=None, repr=False)

    def start(self) -> None:
        command = [
            sys.executable,
            "-P",
            str(SERVE),
            self.name.partition("-")[0],
            "--port",
            str(self.port),
        ]
        if self.store is not None:
            command += ["--store", str(self.store)]
        with self.log.open("ab") as log:
            # A session of its own: Ctrl-C reaches the supervisor alone, which lets the
            # workers finish before it takes their targets away.
            self._process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=log, stderr=log, start_new_session=True
            )

    def wait(self, within_s: float = READY_WITHIN_S) -> None:
        """Return once it answers; TargetNotReady when it ends or stays silent."""
        deadline = time.monotonic() + within_s
        while time.monotonic() < deadline:
            if self._process is None or self._process.poll() is not None:
                raise TargetNotReady(f"{self.name} ended at its start; see {self.log}")
            if self.is_ready():
                return
            time.sleep(0.1)
        raise TargetNotReady(f"{self.name} gave no answer within {within_s:.0f} s; see {self.log}")

    def ask_to_stop(self) -> None:
        """Send SIGTERM and return at once."""
        if self._process is not None and self._process.poll() is None:
            self._process.terminate()

    def stop(self) -> None:
        """End it, kindly for STOP_WITHIN_S seconds, then not."""
        self.ask_to_stop()
        process, self._process = self._process, None
        if process is None:
            return
        try:
            process.wait(STOP_WITHIN_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        if process.stdin is not None:
            process.stdin.close()


@dataclass(frozen=True, slots=True)
class Addresses:
    """Where the outside world is: enough to use it and to read the truth, from any process."""

    home: Path
    payments_port: int
    cloud_port: int
    mailbox_port: int
    proxy_port: int
    payments_sandbox_port: int
    cloud_sandbox_port: int

    @property
    def payments_url(self) -> str:
        """The payment server itself, past the proxy."""
        return f"http://{LOOPBACK}:{self.payments_port}"

    @property
    def proxy_url(self) -> str:
        """The way to the payment server that tools take, and that can break."""
        return f"http://{LOOPBACK}:{self.proxy_port}"

    @property
    def cloud_url(self) -> str:
        return f"http://{LOOPBACK}:{self.cloud_port}"

    @property
    def payments_sandbox_url(self) -> str:
        """Another payment server, in which nothing is anybody's money."""
        return f"http://{LOOPBACK}:{self.payments_sandbox_port}"

    @property
    def cloud_sandbox_url(self) -> str:
        return f"http://{LOOPBACK}:{self.cloud_sandbox_port}"

    @property
    def maildir(self) -> Path:
        return self.home / "mailbox"

    @classmethod
    def read(cls, home: Path) -> Self:
        """The addresses of the world that another process has started in this home."""
        return cls(home, **json.loads((home / PORTS).read_text()))


@dataclass
class World:
    """Everything outside, running: three third-party processes, and the proxy in this one."""

    at: Addresses
    proxy: FaultProxy
    targets: list[Target] = field(default_factory=list)

    @classmethod
    def start(cls, home: Path) -> Self:
        """Start everything with its state under `home`; a failure stops what had started."""
        home.mkdir(parents=True, exist_ok=True)
        take_ports(home / PORTS)
        at = Addresses.read(home)
        proxy = FaultProxy(upstream=(LOOPBACK, at.payments_port), port=at.proxy_port)
        world = cls(at, proxy)
        world.targets = [
            payments(at, "payments", at.payments_port),
            payments(at, "payments-sandbox", at.payments_sandbox_port),
            cloud(at, "cloud", at.cloud_port),
            cloud(at, "cloud-sandbox", at.cloud_sandbox_port),
            Target(
                "mailbox",
                at.mailbox_port,
                home / "mailbox.log",
                lambda: answers_smtp(at.mailbox_port),
                store=at.maildir,
            ),
        ]
        try:
            proxy.start()
            for target in world.targets:
                target.start()
            for target in world.targets:
                target.wait()
        except BaseException:
            world.stop()
            raise
        return world

    def stop(self) -> None:
        for target in self.targets:
            target.ask_to_stop()
        for target in self.targets:
            target.stop()
        self.proxy.stop()


def payments(at: Addresses, name: str, port: int) -> Target:
    """A payment server, its objects kept in the home under its own name."""
    url = f"http://{LOOPBACK}:{port}/v1/refunds"
    store = at.home / f"{name}.pickle"
    return Target(name, port, at.home / f"{name}.log", lambda: answers_http(url), store=store)


def cloud(at: Addresses, name: str, port: int) -> Target:
    """A cloud, in memory."""
    url = f"http://{LOOPBACK}:{port}/moto-api/"
    return Target(name, port, at.home / f"{name}.log", lambda: answers_http(url))


@cache
def _visitor() -> httpx.Client:
    """One for all looks: each that is made reads every authority of the trust store (26 ms)."""
    headers = {"Authorization": f"Bearer {PAYMENTS_KEY}"}
    return httpx.Client(headers=headers, timeout=5, trust_env=False)


def answers_http(url: str) -> bool:
    """Whether anything below 500 comes back from `url`."""
    try:
        return _visitor().get(url).status_code < 500
    except httpx.HTTPError:
        return False


def answers_smtp(port: int) -> bool:
    """Whether a mail server says its greeting there."""
    try:
        with smtplib.SMTP(LOOPBACK, port, timeout=5) as server:
            return server.noop()[0] == 250
    except (OSError, smtplib.SMTPException):
        return False


def take_ports(kept: Path) -> None:
    """Write a free port for each name to `kept`: the one that stood there when it is free."""
    try:
        before = json.loads(kept.read_text())
    except (OSError, ValueError):
        before = {}
    names = [one.name for one in fields(Addresses) if one.name.endswith("_port")]
    kept.write_text(json.dumps({name: _take_port(int(before.get(name, 0))) for name in names}))


def _take_port(wanted: int) -> int:
    for port in (wanted, 0):
        with socket.socket() as probe:
            # As the servers bind: a port whose last connections still linger is free.
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((LOOPBACK, port))
            except OSError:
                continue
            return int(probe.getsockname()[1])
    raise TargetNotReady("this machine has no free port left")
