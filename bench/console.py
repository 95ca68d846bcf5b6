"""A console of its own, in a temporary home: default settings, and one tool that does nothing."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import Self

import psycopg

from saga_console.home import BASE_DIR, Home

_READY_WITHIN_S = 60.0
_STOP_WITHIN_S = 30.0
# Enough to see why, when the console was the one that failed.
_LAST_WORDS = 40
_MAY_STAY = ("PATH", "HOME", "LANG", "LC_ALL", "TMPDIR", "VIRTUAL_ENV", "TZ")


class NotReady(RuntimeError):
    """The console did not come up."""


class BenchConsole:
    """`manage.py up` for the length of a `with`. Afterwards nothing of it is left.

    Nothing of the caller's environment reaches it: what is measured are the defaults.
    """

    def __init__(self) -> None:
        self.port = _free_port()
        self._folder = Path(tempfile.mkdtemp(prefix="saga-bench-"))
        self._home = Home(self._folder / "home")
        self._log = self._folder / "log"
        kept = {name: os.environ[name] for name in _MAY_STAY if name in os.environ}
        self._env = kept | {"SAGA_HOME": str(self._home.root), "SAGA_APPS": "bench.noop"}
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def database_url(self) -> str:
        return self._home.database_url

    def __enter__(self) -> Self:
        try:
            with self._log.open("wb") as log:
                self._process = subprocess.Popen(
                    [sys.executable, "manage.py", "up", "--port", str(self.port)],
                    cwd=BASE_DIR,
                    env=self._env,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                )
            self._await_ready()
        except BaseException as error:
            self.__exit__(type(error))
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None = None, *_exc: object) -> None:
        if kind is not None:
            print("".join(self.said().splitlines(keepends=True)[-_LAST_WORDS:]), file=sys.stderr)
        if self._process is not None:
            self._process.terminate()
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(_STOP_WITHIN_S)
            self._process.kill()
            self._process.wait()
        shutil.rmtree(self._folder, ignore_errors=True)

    def said(self) -> str:
        return self._log.read_text(encoding="utf-8", errors="replace")

    def agent_token(self) -> str:
        """A token of a new agent that may use the tool that does nothing."""
        return self._manage("agent_token", "bench", "--tools", "bench.*").stdout.strip()

    def verifies(self) -> bool:
        """Whether `verify_ledger` finds the log and the state to be one."""
        return self._manage("verify_ledger").returncode == 0

    def committed_steps(self) -> int:
        with psycopg.connect(self.database_url) as connection:
            counted = "SELECT count(*) FROM ledger_step WHERE state = 'committed'"
            found = connection.execute(counted).fetchone()
        assert found is not None
        return int(found[0])

    def _manage(self, *words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "manage.py", *words],
            cwd=BASE_DIR,
            env=self._env,
            capture_output=True,
            text=True,
            check=False,
        )

    def _await_ready(self) -> None:
        assert self._process is not None
        deadline = time.monotonic() + _READY_WITHIN_S
        while "ready: http" not in self.said():
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise NotReady("the console did not come up; this is what it said")
            time.sleep(0.05)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
