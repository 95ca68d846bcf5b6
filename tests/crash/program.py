"""One process of a lane: tended, stopped, killed, and caught at a fault point."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

import psutil

from saga_console.home import BASE_DIR
from tests.running import eventually


def _stands_still(pid: int) -> bool:
    tasks = Path(f"/proc/{pid}/task").glob("*/stat")
    return all(task.read_text().rpartition(")")[2].split()[0] == "T" for task in tasks)


class Program:
    """One process of the console: started again when it dies, while it is wanted."""

    def __init__(self, name: str, argv: list[str], env: Mapping[str, str], log: Path) -> None:
        self.name = name
        self.argv = argv
        self.env = dict(env)
        self.log = log
        self.wanted = True
        self.process: subprocess.Popen[bytes] | None = None

    def tend(self) -> None:
        if self.wanted and (self.process is None or self.process.poll() is not None):
            with self.log.open("ab") as log:
                self.process = subprocess.Popen(
                    self.argv,
                    cwd=BASE_DIR,
                    env=self.env,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                )

    @property
    def pids(self) -> set[int]:
        if self.process is None or self.process.poll() is not None:
            return set()
        with suppress(psutil.Error):
            mine = psutil.Process(self.process.pid)
            return {mine.pid} | {child.pid for child in mine.children(recursive=True)}
        return set()

    def signal(self, number: signal.Signals) -> None:
        if self.process is not None:
            with suppress(ProcessLookupError):
                os.killpg(self.process.pid, number)

    def stop(self) -> None:
        """SIGSTOP, and wait until every thread stands still: the signal alone is only a wish."""
        self.signal(signal.SIGSTOP)
        eventually(lambda: all(_stands_still(pid) for pid in self.pids), f"{self.name} stands")

    def kill(self) -> float:
        """SIGKILL; the moment of its death. It is started again."""
        assert self.process is not None
        self.signal(signal.SIGKILL)
        self.process.wait(10)
        return time.monotonic()

    def end(self) -> None:
        """SIGKILL, and stay dead."""
        self.wanted = False
        self.signal(signal.SIGKILL)
        if self.process is not None:
            self.process.wait(10)


class Caught:
    """A process that has reached an armed point and stands there until `let_go`, or its end."""

    def __init__(self, programs: Mapping[str, Program], here: Path) -> None:
        self.programs = programs
        self.here = here
        self.pid = int(here.name.split(".")[1])
        self.at = time.monotonic()

    @property
    def program(self) -> Program:
        return next(p for p in self.programs.values() if self.pid in p.pids)

    def kill(self) -> float:
        """SIGKILL of the whole program; the moment of its death."""
        died_at = self.program.kill()
        self.here.unlink(missing_ok=True)
        return died_at

    def let_go(self) -> float:
        self.here.unlink(missing_ok=True)
        return time.monotonic()
