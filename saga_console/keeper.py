"""The keeper of one embedded server: a small process that is its parent.

Every process that uses the server holds `NAME.users` shared. The keeper tries to take it
exclusively: when that succeeds nobody is left, so it stops the server and ends. The kernel
drops a user's lock however the user dies, so nothing is counted and nothing can leak.
A server that dies is started again. If the keeper itself is killed, the kernel tells the
server to stop (parent-death signal), and the next user finds the home free.

    python -m saga_console.keeper NAME HOME READY_FD
"""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import FrameType

from saga_console import accounts
from saga_console.engines import Engine, engine
from saga_console.home import Home, log_file
from saga_console.locks import open_lock, try_lock

_LOOK_S = 0.1  # how soon an unused server is stopped, and a dead one noticed
_READY_WITHIN_S = 90.0  # crash recovery after a heavy load is replayed before it answers
_LEFTOVER_WITHIN_S = 60.0
_BACKOFF_S = (0.2, 0.5, 1.0, 2.0, 5.0)


class DidNotStart(RuntimeError):
    """The server ended, or stayed silent, before it was ready."""


class Keeper:
    """Starts, watches, restarts and stops one server."""

    def __init__(self, server: Engine, home: Home) -> None:
        self.server = server
        self.home = home
        self.child: subprocess.Popen[bytes] | None = None
        self.asked_to_stop = False

    def start(self) -> None:
        """Run the server and wait until it answers."""
        self._see_off_leftover()
        argv = accounts.command_for_server(
            self.server.command(), dies_with_parent=self.server.stop_signal
        )
        on_death = None if accounts.is_root() else accounts.parent_death(self.server.stop_signal)
        with log_file(self.server.name, self.home).open("ab") as log:
            self.child = subprocess.Popen(  # noqa: S603
                argv,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd="/",
                start_new_session=True,
                preexec_fn=on_death,  # noqa: PLW1509  (this process has one thread)
            )
        deadline = time.monotonic() + _READY_WITHIN_S
        while not self.server.is_ready():
            if self.child.poll() is not None or time.monotonic() > deadline:
                raise DidNotStart(self._last_words())
            time.sleep(0.02)

    def _see_off_leftover(self) -> None:
        """A killed keeper's server is stopping by itself; two on one folder never run."""
        deadline = time.monotonic() + _LEFTOVER_WITHIN_S
        asked = 0.0
        while (pid := self.server.leftover_pid()) is not None:
            if time.monotonic() > deadline:
                raise DidNotStart(f"process {pid} still runs on this home and does not stop")
            if time.monotonic() - asked > 10:
                os.kill(pid, self.server.stop_signal)
                asked = time.monotonic()
            time.sleep(0.05)
        self.server.clear_traces()

    def _last_words(self) -> str:
        path = log_file(self.server.name, self.home)
        tail = path.read_text(encoding="utf-8", errors="replace").splitlines()[-3:]
        return f"{' / '.join(tail)} (all of it: {path})"

    def stop(self) -> None:
        """Ask, wait, insist."""
        if self.child is None or self.child.poll() is not None:
            return
        self.child.send_signal(self.server.stop_signal)
        try:
            self.child.wait(self.server.stop_within_s)
        except subprocess.TimeoutExpired:
            self.child.kill()
            self.child.wait()

    def watch(self, users: int) -> None:
        """Return when nobody uses the server any more, or somebody asked it to end."""
        failures = 0
        started = time.monotonic()
        while not self.asked_to_stop and self.home.root.exists():
            if try_lock(users, fcntl.LOCK_EX):
                return
            if self.child is not None and self.child.poll() is not None:
                if time.monotonic() - started > 60:
                    failures = 0
                print(f"{self.server.name} ended ({self.child.returncode}); starting it again")
                time.sleep(_BACKOFF_S[min(failures, len(_BACKOFF_S) - 1)])
                failures += 1
                started = time.monotonic()
                self._try_again()
            time.sleep(_LOOK_S)

    def _try_again(self) -> None:
        try:
            self.start()
        except DidNotStart as error:
            print(f"{self.server.name}: {error}")

    def ask_to_stop(self, _signal: int, _frame: FrameType | None) -> None:
        self.asked_to_stop = True


def main(name: str, root: str, ready_fd: int) -> int:
    """Keep one server. Writes `ready` or the reason why not to the descriptor."""
    home = Home(Path(root))
    owner = open_lock(home.run / f"{name}.keeper.lock")
    if not try_lock(owner, fcntl.LOCK_EX):
        os.write(ready_fd, b"another keeper is running\n")
        return 1
    users = open_lock(home.run / f"{name}.users.lock")
    keeper = Keeper(engine(name, home), home)
    signal.signal(signal.SIGTERM, keeper.ask_to_stop)
    signal.signal(signal.SIGINT, keeper.ask_to_stop)
    try:
        keeper.server.create()
        keeper.start()
        keeper.server.furnish()
    except Exception as error:  # whatever it is, the starter must hear of it
        keeper.stop()
        os.write(ready_fd, f"{error}\n".encode())
        return 1
    os.write(ready_fd, b"ready\n")
    os.close(ready_fd)
    keeper.watch(users)
    keeper.stop()
    # In this order: whoever gets the users' lock next must see that nobody keeps the server.
    os.close(owner)
    os.close(users)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2], int(sys.argv[3])))
