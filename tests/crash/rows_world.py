"""P25, P27 and P28: new code, clocks that jump, processes that fork."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from tests.crash.lane import WORKERS, Lane
from tests.crash.rows import ROADS, Play, Row, Stage, arrives, finish, meets, out_during, set_out

FAKETIME = next(Path("/usr/lib").glob("*/faketime/libfaketimeMT.so.1"), None)


@contextmanager
def workers_with(lane: Lane, argv: list[str] | None = None, **env: str) -> Iterator[None]:
    """Both workers run with another environment, or as another program, meanwhile."""
    before = {name: (lane.programs[name].argv, lane.programs[name].env) for name in WORKERS}
    try:
        for name in WORKERS:
            program = lane.programs[name]
            program.argv = argv or program.argv
            program.env = program.env | env
            program.kill()
        yield
    finally:
        for name, (argv_, env_) in before.items():
            lane.programs[name].argv, lane.programs[name].env = argv_, env_
            lane.programs[name].kill()


@contextmanager
def new_code(lane: Lane, change: str) -> Iterator[None]:
    """Workers restart with a tools file in which the tool is missing, or is another one. What must
    wait is parked with its reason; with the old file it goes on."""
    text = lane.tools.read_text(encoding="utf-8")
    other = lane.folder / "other-tools.toml"
    changed = text.replace('version = "1"', 'version = "2"')
    other.write_text("" if change == "missing" else changed, encoding="utf-8")
    with workers_with(lane, SAGA_TOOLS=str(other)):
        yield


def other_zone(direction: str) -> Play:
    """Workers and database live in other time zones, and a worker dies."""

    def play(stage: Stage, kind: str) -> None:
        lane = stage.lane
        about = ROADS[direction].about
        lane.sql("ALTER DATABASE saga SET timezone = 'America/St_Johns'", role="postgres")
        try:
            with workers_with(lane, TZ="Pacific/Kiritimati"):
                story = set_out(stage, direction, kind, lambda _: lane.arm("P12", about))
                stage.struck(lane.caught("P12").kill())
                finish(stage, story, direction)
        finally:
            lane.sql("ALTER DATABASE saga RESET timezone", role="postgres")

    return play


def clock_steps(direction: str, *steps: str) -> Play:
    """The workers' wall clock jumps while the call is out (libfaketime; the monotonic clock and
    the database's are left alone)."""

    def play(stage: Stage, kind: str) -> None:
        assert FAKETIME is not None, "libfaketime is needed here: apt-get install libfaketime"
        lane = stage.lane
        clock = lane.folder / "clock"
        clock.write_text("+0", encoding="ascii")
        fake = {
            "LD_PRELOAD": str(FAKETIME),
            "FAKETIME_TIMESTAMP_FILE": str(clock),
            "FAKETIME_NO_CACHE": "1",
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
            "FAKETIME_DONT_RESET": "1",
            "TZ": "Europe/Berlin",
        }
        with workers_with(lane, **fake):
            story = set_out(stage, direction, kind, lambda s: meets(s, direction, "hold"))
            arrives(story, direction)
            worker = lane.working_on(story.saga)
            for step in steps:
                clock.write_text(step, encoding="ascii")
                time.sleep(0.5)
            stage.struck(worker.kill())
            lane.target.released.set()
            finish(stage, story, direction)

    return play


def forked(stage: Stage, kind: str) -> None:
    """RQ's forking worker, whose parent holds a pool: the child must not use what it inherited."""
    lane = stage.lane
    argv = [sys.executable, "-m", "tests.crash.forker"]
    with workers_with(lane, argv):
        story = set_out(stage, "compensate", kind, lambda _: lane.arm("P12", "compensate"))
        caught = lane.caught("P12")
        os.kill(caught.pid, signal.SIGKILL)  # the horse alone: its parent starts the next one
        caught.here.unlink()
        stage.struck()
        finish(stage, story, "compensate")


def _rows() -> list[Row]:
    rows = [Row("P28", "forking workers, horse killed", "compensate", "probed", forked)]
    for direction in ("forward", "compensate"):
        plays = {
            ("P25", "the tool is missing"): out_during(
                partial(new_code, change="missing"), direction, "lost"
            ),
            ("P25", "the tool is changed"): out_during(
                partial(new_code, change="changed"), direction, "lost"
            ),
            ("P27", "other time zones"): other_zone(direction),
            ("P27", "clock +2 h, then -3 h"): clock_steps(direction, "+2h", "-3h"),
        }
        rows += [Row(*named, direction, "probed", play) for named, play in plays.items()]
    return rows


ROWS = _rows()
