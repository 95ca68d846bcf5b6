"""Locks between processes. Each is a flock on a file.

The kernel lets go of a flock when its owner dies, however it dies, so there are no stale ones
to recover after `kill -9`. A file that is merely lying there means nothing.
"""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_POLL_S = 0.02


class StillHeld(RuntimeError):
    """A lock that should be free within moments is not. The message names its file."""


def open_lock(path: Path) -> int:
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)


def try_lock(descriptor: int, mode: int) -> bool:
    """Take the lock now or not at all. `mode` is fcntl.LOCK_EX or LOCK_SH."""
    try:
        fcntl.flock(descriptor, mode | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def lock_within(descriptor: int, mode: int, seconds: float) -> bool:
    """Take the lock, waiting at most `seconds`."""
    deadline = time.monotonic() + seconds
    while not try_lock(descriptor, mode):
        if time.monotonic() > deadline:
            return False
        time.sleep(_POLL_S)
    return True


@contextmanager
def locked(path: Path, seconds: float = 120) -> Iterator[int]:
    """Hold a lock of our own for a short while."""
    descriptor = open_lock(path)
    try:
        if not lock_within(descriptor, fcntl.LOCK_EX, seconds):
            raise StillHeld(f"{path} has been held by another process for {seconds:.0f} s")
        yield descriptor
    finally:
        os.close(descriptor)
