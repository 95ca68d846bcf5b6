"""Having a database and a Redis for as long as this process lives."""

from __future__ import annotations

import atexit
import fcntl
import os
import select
import subprocess
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

from saga_console import environment
from saga_console.home import BASE_DIR, Home, HomeError, current_home, log_file
from saga_console.locks import lock_within, locked, open_lock, try_lock

_READY_WITHIN_S = 120.0  # more than the keeper's own limit, so that its reason arrives
_STOPPED_WITHIN_S = 90.0
_LOOK_S = 0.02
# The keeper looks ten times a second; after three looks the server is somebody else's too.
_OTHERS_AFTER_S = 0.4

VARIABLE = {"postgres": "DATABASE_URL", "valkey": "REDIS_URL"}


class ServerUse:
    """One process's use of one embedded server: a shared lock, and nothing else."""

    def __init__(self, home: Home, name: str) -> None:
        self.home = home
        self.name = name
        self._users: int | None = None

    def acquire(self) -> None:
        """Return when the server answers. Raises HomeError with the reason in one line."""
        with locked(self.home.run / f"{self.name}.start.lock", _READY_WITHIN_S):
            users = open_lock(self.home.run / f"{self.name}.users.lock")
            if not lock_within(users, fcntl.LOCK_SH, _STOPPED_WITHIN_S):
                raise HomeError(f"the {self.name} of {self.home.root} is stopping and does not end")
            self._users = users
            try:
                if not self.is_kept():
                    self._start_keeper()
            except HomeError:
                self.drop()
                raise

    def look_after(self) -> bool:
        """Start the server again if its keeper was killed. True when that was needed."""
        if self._users is None or self.is_kept():
            return False
        with locked(self.home.run / f"{self.name}.start.lock", _READY_WITHIN_S):
            if not self.is_kept():
                self._start_keeper()
        return True

    def is_kept(self) -> bool:
        """Whether a keeper is there: it starts, restarts and stops the server."""
        owner = open_lock(self.home.run / f"{self.name}.keeper.lock")
        try:
            return not try_lock(owner, fcntl.LOCK_SH)
        finally:
            os.close(owner)

    def _start_keeper(self) -> None:
        reading, writing = os.pipe()
        argv = [sys.executable, "-m", "saga_console.keeper"]
        argv += [self.name, str(self.home.root), str(writing)]
        with log_file("keeper", self.home).open("ab") as log:
            subprocess.Popen(  # noqa: S603
                argv,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=BASE_DIR,
                env=os.environ | {"PYTHONUNBUFFERED": "1"},
                start_new_session=True,  # Ctrl-C in a terminal is for its users
                pass_fds=(writing,),
            )
        os.close(writing)
        with os.fdopen(reading, "rb") as pipe:
            ready, _, _ = select.select([pipe], [], [], _READY_WITHIN_S)
            said = pipe.readline().decode(errors="replace").strip() if ready else "no answer"
        if said != "ready":
            raise HomeError(f"{self.name} did not start: {said or f'see {self.home.log}'}")

    @property
    def is_held(self) -> bool:
        return self._users is not None

    def drop(self) -> None:
        """Stop using it, and wait for nobody."""
        if self._users is not None:
            os.close(self._users)
            self._users = None

    def release(self) -> None:
        """Stop using it. If nobody else does, return when it has stopped."""
        release([self])

    def wait_if_last(self, began: float) -> None:
        """It was dropped at `began`: return when it has stopped, unless others use it."""
        last_seen_alone = began
        while time.monotonic() - began < _STOPPED_WITHIN_S and self.is_kept():
            users = open_lock(self.home.run / f"{self.name}.users.lock")
            keeper_is_stopping = not try_lock(users, fcntl.LOCK_SH)
            os.close(users)
            if keeper_is_stopping:
                last_seen_alone = time.monotonic()
            elif time.monotonic() - last_seen_alone > _OTHERS_AFTER_S:
                return
            time.sleep(_LOOK_S)


def release(uses: Sequence[ServerUse]) -> None:
    """Stop using all of them, then wait for those that nobody else uses: they stop side by side."""
    held = [use for use in uses if use.is_held]
    for use in held:
        use.drop()
    began = time.monotonic()
    for use in held:
        with suppress(FileNotFoundError):  # the home was deleted meanwhile
            use.wait_if_last(began)


def ensure_servers(home: Home | None = None) -> list[ServerUse]:
    """Have a database and a Redis for as long as this process lives.

    What DATABASE_URL and REDIS_URL name is used as it is. For what they leave open, the
    embedded server of the home is found, or started, and counted as used by this process;
    the last process to end stops it. The two variables are set for this process and for
    everything that it starts, so a child does not ask again. Call it before Django's
    settings are read. Raises HomeError. Returns what was taken into use; it is released
    when the process ends, or earlier by hand.
    """
    home = home or current_home()
    missing = [name for name, variable in VARIABLE.items() if not environment.text(variable)]
    if missing:
        home.create()
    uses = [ServerUse(home, name) for name in missing]
    atexit.register(release, uses)
    # Side by side: a short command waits for both, and most of its time is theirs.
    with ThreadPoolExecutor(max_workers=len(VARIABLE)) as pool:
        list(pool.map(ServerUse.acquire, uses))
    for name in missing:
        os.environ[VARIABLE[name]] = home.database_url if name == "postgres" else home.redis_url
    return uses
