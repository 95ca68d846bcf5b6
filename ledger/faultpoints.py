"""Named places at which a crash test may stop a process; nothing at all in a normal one.

`SAGA_FAULTS` names a folder, and is read once, when the process starts: nothing that runs
later, and no request, can switch the points on. In that folder a file `P10` (or `P10.forward`,
for one direction only) arms a point. The first process that reaches it renames the file to
`P10.<pid>.here`, which says that it is there, and stays there until that file is gone. So a
test kills, stops or cuts off a real process exactly there (tests/crash/).
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path

# What has happened when a process gets there, by the numbers of docs/recovery.md.
POINTS: Mapping[str, str] = {
    "P0": "a proposal was read and checked; nothing is written",
    "P1": "a proposal is being written under its locks; not committed",
    "P3": "a proposal is committed; its answer is not sent",
    "P4": "the relay has heard that work waits; it has not looked",
    "P5": "a ring is recorded; no job is queued",
    "P6": "the job is queued; the relay has done nothing since",
    "P8": "RQ has handed the job out; the shift has not begun",
    "P9": "the shift has begun; nothing is claimed",
    "P10": "claim and intent are committed; nothing is sent",
    "P11": "the target has begun to answer; nothing is read",
    "P12": "the answer is there; nothing is written",
    "P13": "an outcome is being written under its locks; not committed",
    "P14": "outcome and next message are committed",
    "P15": "the shift has ended; RQ does not know",
    "P18": "a saga is being turned back; not committed",
    "P23": "a person's answer is written; not committed",
}
# A test that has died leaves nobody standing for longer than this.
AT_MOST_S = 120.0
_LOOK_S = 0.002

Reached = Callable[[str, str], None]


def _nothing(point: str, about: str = "") -> None:
    """A normal process: the points are not there."""


def watching(folder: Path) -> Reached:
    """A process under test: stop where the folder says so."""

    def reached(point: str, about: str = "") -> None:
        here = folder / f"{point}.{os.getpid()}.here"
        for armed in (folder / f"{point}.{about}", folder / point):
            try:
                armed.rename(here)
            except FileNotFoundError:
                continue
            deadline = time.monotonic() + AT_MOST_S
            while here.exists() and time.monotonic() < deadline:
                time.sleep(_LOOK_S)
            return

    return reached


_FOLDER = os.environ.get("SAGA_FAULTS", "").strip()
reached: Callable[..., None] = watching(Path(_FOLDER)) if _FOLDER else _nothing
