"""Running the console as its users do: as processes, in a home of their own."""

from __future__ import annotations

import fcntl
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Self

from saga_console.home import BASE_DIR, Home
from saga_console.locks import try_lock

PATIENCE_S = 120.0


def clean_env(home: Path, **more: str) -> dict[str, str]:
    """This environment without the test run's own servers."""
    own = {"DATABASE_URL", "REDIS_URL", "PORT", "SAGA_HOME", "SAGA_STATIC_FROM_SOURCE"}
    kept = {name: value for name, value in os.environ.items() if name not in own}
    return kept | {"SAGA_HOME": str(home), "PYTHONUNBUFFERED": "1"} | more


def manage(home: Path, *words: str, **more: str) -> subprocess.CompletedProcess[str]:
    """One management command, to its end."""
    return subprocess.run(
        [sys.executable, "manage.py", *words],
        cwd=BASE_DIR,
        env=clean_env(home, **more),
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def eventually(holds: Callable[[], bool], what: str, within_s: float = PATIENCE_S) -> None:
    """Wait for something that another process does."""
    deadline = time.monotonic() + within_s
    while not holds():
        assert time.monotonic() < deadline, f"never happened: {what}"
        time.sleep(0.05)


def is_kept(home: Path, name: str) -> bool:
    """Whether an embedded server of the home is running under its keeper."""
    path = Home(home).run / f"{name}.keeper.lock"
    if not path.exists():
        return False
    descriptor = os.open(path, os.O_RDWR)
    try:
        return not try_lock(descriptor, fcntl.LOCK_SH)
    finally:
        os.close(descriptor)


class Up:
    """A running `manage.py up`. Its output goes to a file, so a full pipe never blocks it."""

    def __init__(self, home: Path, *words: str, port: int | None = None, **env: str) -> None:
        self.home = home
        self.port = port or free_port()
        self.log = home.parent / f"{home.name}-{time.monotonic_ns()}.log"
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, "manage.py", "up", "--port", str(self.port), *words],
                cwd=BASE_DIR,
                env=clean_env(home, **env),
                stdout=log,
                stderr=subprocess.STDOUT,
            )

    def __enter__(self) -> Self:
        eventually(lambda: "ready: http" in self.said() or not self.is_running(), "ready")
        assert self.is_running(), self.said()
        return self

    def __exit__(self, *_exc: object) -> None:
        self.stop()

    def is_running(self) -> bool:
        return self.process.poll() is None

    def said(self) -> str:
        return self.log.read_text(encoding="utf-8", errors="replace")

    def stop(self, number: signal.Signals = signal.SIGTERM) -> int:
        """Its exit status."""
        if self.is_running():
            self.process.send_signal(number)
        return self.process.wait(PATIENCE_S)
