"""A supervised child process: started, listened to, restarted, stopped."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Literal

from saga_console.accounts import parent_death
from saga_console.home import BASE_DIR

# A child that comes up and dies at once is not started in a tight loop, and one that has been
# well for a minute starts again without delay.
_BACKOFF_S = (0.2, 1.0, 2.0, 5.0, 10.0)
_WELL_AFTER_S = 60.0


# What its end means: a failure to repair, the end of the whole run, or nothing.
AtItsEnd = Literal["restart", "stop", "carry on"]


@dataclass(slots=True)
class Child:
    """One program of the console. Times are of the monotonic clock, in seconds."""

    name: str
    argv: Sequence[str]
    env: Mapping[str, str]
    grace_s: float
    at_its_end: AtItsEnd = "restart"
    process: subprocess.Popen[bytes] | None = None
    unfinished_line: bytes = b""
    failures: int = 0
    started_at: float = 0.0
    start_again_at: float | None = None

    @property
    def is_running(self) -> bool:
        return self.process is not None and self.process.poll() is None

    @property
    def output(self) -> int:
        """The descriptor of its stdout and stderr. It has been started."""
        assert self.process is not None
        assert self.process.stdout is not None
        return self.process.stdout.fileno()

    def start(self) -> None:
        """Start it in a session of its own: Ctrl-C is the supervisor's to pass on, in order.

        When the supervisor is killed the kernel asks the child to end (Linux).
        """
        self.process = subprocess.Popen(  # noqa: S603
            self.argv,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=dict(self.env),
            cwd=BASE_DIR,
            start_new_session=True,
            preexec_fn=parent_death(signal.SIGTERM),  # noqa: PLW1509  (one thread)
        )
        os.set_blocking(self.output, False)
        self.started_at = time.monotonic()
        self.start_again_at = None

    def lines(self) -> list[str]:
        """What it has said since the last call, whole lines only."""
        with suppress(BlockingIOError):
            while chunk := os.read(self.output, 65536):
                self.unfinished_line += chunk
        *whole, self.unfinished_line = self.unfinished_line.split(b"\n")
        return [line.decode(errors="replace").rstrip("\r") for line in whole]

    def plan_restart(self) -> float:
        """It has ended: decide when it is started again. Returns the delay in seconds."""
        now = time.monotonic()
        if now - self.started_at > _WELL_AFTER_S:
            self.failures = 0
        delay = _BACKOFF_S[min(self.failures, len(_BACKOFF_S) - 1)]
        self.failures += 1
        self.start_again_at = now + delay
        return delay

    def ending(self) -> str:
        """How it ended, for people."""
        code = self.process.returncode if self.process else None
        if code is None:
            return "is running"
        if code < 0:
            return f"was ended by {signal.Signals(-code).name}"
        return f"exited with status {code}"

    def ask_to_stop(self) -> None:
        if self.process is not None and self.is_running:
            self.process.terminate()

    def kill(self) -> None:
        """Kill it and whatever it started: it leads a process group of its own."""
        if self.process is not None:
            with suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)
