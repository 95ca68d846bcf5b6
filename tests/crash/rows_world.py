"""P25 to P28: new code, a database that refuses, clocks that jump, processes that fork."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import httpx
import psycopg

from tests.crash.lane import WORKERS, Lane
from tests.crash.rows import ROADS, Play, Row, Stage, finish, set_out
from tests.crash.rows_calls import arrives, meets
from tests.running import eventually

AWAY_S = 2.5  # longer than a lease
FAKETIME = next(Path("/usr/lib").glob("*/faketime/libfaketimeMT.so.1"), None)


def restarted(point: str, number: signal.Signals, direction: str) -> Play:
    """Postgres restarts (SIGINT: its own fast way; SIGKILL: recovery) while a worker is there."""

    def play(stage: Stage, kind: str) -> None:
        about = ROADS[direction].about
        story = set_out(stage, direction, kind, lambda _: stage.lane.arm(point, about))
        caught = stage.lane.caught(point)
        stage.struck(stage.lane.restart("postgres", number))
        caught.let_go()
        finish(stage, story, direction)

    return play


def backends_ended(direction: str) -> Play:
    """Every connection is ended by the server (57P01), again and again."""

    def play(stage: Stage, kind: str) -> None:
        story = set_out(stage, direction, kind, lambda _: None)
        stage.struck()
        for _ in range(8):
            stage.lane.sql(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                "WHERE application_name LIKE 'saga-%%' AND pid <> pg_backend_pid()",
                role="postgres",
            )
            time.sleep(0.25)
        finish(stage, story, direction)

    return play


@contextmanager
def refusing(lane: Lane, sqlstate: str) -> Iterator[None]:
    """Every entry is refused with this SQLSTATE meanwhile: a real trigger of the real server."""
    lane.sql(
        "CREATE OR REPLACE FUNCTION crash_refuses() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN "
        f"RAISE EXCEPTION 'refused for a crash row' USING ERRCODE = '{sqlstate}'; END $$"
    )
    lane.sql(
        "CREATE OR REPLACE TRIGGER crash_refuses BEFORE INSERT ON ledger_entry "
        "FOR EACH ROW EXECUTE FUNCTION crash_refuses()"
    )
    try:
        yield
    finally:
        _insist(lane, "DROP FUNCTION crash_refuses CASCADE")


def _insist(lane: Lane, statement: str) -> None:
    def is_done() -> bool:
        with suppress(psycopg.Error):
            lane.sql(statement)
            return True
        return False

    eventually(is_done, statement)


def refused(sqlstate: str, direction: str) -> Play:
    """The outcome of a call cannot be written for longer than its lease."""

    def play(stage: Stage, kind: str) -> None:
        lane = stage.lane
        story = set_out(stage, direction, kind, lambda s: meets(s, direction, "hold"))
        arrives(story, direction)
        with refusing(lane, sqlstate):
            stage.struck()
            lane.target.released.set()
            time.sleep(AWAY_S)
        finish(stage, story, direction)

    return play


def read_only(direction: str) -> Play:
    """The server accepts no writes for a while (25006), as a primary that was demoted."""

    def play(stage: Stage, kind: str) -> None:
        lane = stage.lane
        story = set_out(stage, direction, kind, lambda s: meets(s, direction, "hold"))
        arrives(story, direction)
        lane.sql("ALTER SYSTEM SET default_transaction_read_only = on", role="postgres")
        lane.sql("SELECT pg_reload_conf()", role="postgres")
        try:
            stage.struck()
            lane.target.released.set()
            time.sleep(AWAY_S)
        finally:
            lane.sql("ALTER SYSTEM RESET default_transaction_read_only", role="postgres")
            lane.sql("SELECT pg_reload_conf()", role="postgres")
        finish(stage, story, direction)

    return play


def deadlocked(stage: Stage, kind: str) -> None:
    """Somebody locks in the other order: Postgres breaks the circle with a real 40P01."""
    lane = stage.lane
    story = stage.story(kind)
    lane.arm("P13", "forward")
    story.open(a="make", b="make")
    caught = lane.caught("P13")
    (step,) = lane.sql(
        "SELECT id, saga_id FROM ledger_step WHERE saga_id = %s AND position = 2", story.saga
    )
    with psycopg.connect(lane.home.database_url) as other:
        other.execute("SELECT 1 FROM ledger_step WHERE id = %s FOR UPDATE", [step["id"]])
        caught.let_go()
        stage.struck()
        with suppress(psycopg.errors.DeadlockDetected, psycopg.errors.LockNotAvailable):
            other.execute("SELECT 1 FROM ledger_saga WHERE id = %s FOR UPDATE", [step["saga_id"]])
        other.rollback()
    story.complete()
    stage.end(story, "completed")


def snapshot_held(stage: Stage, kind: str) -> None:
    """A long snapshot is open for the whole row, and a worker dies meanwhile."""
    with psycopg.connect(stage.lane.home.database_url) as reader:
        reader.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        reader.execute("SELECT count(*) FROM ledger_entry")
        story = set_out(stage, "compensate", kind, lambda _: stage.lane.arm("P12", "compensate"))
        stage.struck(stage.lane.caught("P12").kill())
        finish(stage, story, "compensate")
        reader.execute("SELECT count(*) FROM ledger_entry")


@contextmanager
def small_disk(lane: Lane) -> Iterator[Path]:
    """The entries live on a disk of a few megabytes: a tmpfs, so its ENOSPC is the kernel's."""
    place = lane.folder / "small-disk"
    place.mkdir(exist_ok=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=3m,mode=777", "tmpfs", place], check=True)
    space = place / "space"
    space.mkdir()
    data = (lane.home.root / "postgres").stat()
    os.chown(space, data.st_uid, data.st_gid)
    try:
        lane.sql(f"CREATE TABLESPACE small LOCATION '{space}'", role="postgres")
        _insist_as(lane, "ALTER TABLE ledger_entry SET TABLESPACE small")
        yield place
    finally:
        (place / "ballast").unlink(missing_ok=True)
        _insist_as(lane, "ALTER TABLE ledger_entry SET TABLESPACE pg_default")
        _insist_as(lane, "DROP TABLESPACE small")
        subprocess.run(["umount", "-l", place], check=True)


def _insist_as(lane: Lane, statement: str) -> None:
    def is_done() -> bool:
        with suppress(psycopg.Error):
            lane.sql(statement, role="postgres")
            return True
        return False

    eventually(is_done, statement)


def can_mount() -> bool:
    """Whether this machine lets us have a small disk."""
    if os.geteuid() or shutil.which("mount") is None:
        return False
    done = subprocess.run(["unshare", "--mount", "true"], capture_output=True, check=False)
    return done.returncode == 0


def disk_full(stage: Stage, kind: str) -> None:
    """The disk of the entries is full for a while: nothing is accepted, nothing is doubled."""
    lane = stage.lane
    log = lane.home.log / "postgres.log"
    with small_disk(lane) as place:
        story = set_out(stage, "forward", kind, lambda s: meets(s, "forward", "hold"))
        arrives(story, "forward")
        ballast = place / "ballast"
        with suppress(OSError), ballast.open("wb", buffering=0) as file:
            while file.write(b"\0" * 4096):
                pass
        full = log.read_text(errors="replace").count("No space left on device")

        def is_full() -> bool:
            """Fill what is left of the last page until the server says so."""
            with suppress(httpx.TransportError):
                stage.story(kind).client.post("sagas", json=stage.story(kind).body(a="make"))
            return log.read_text(errors="replace").count("No space left on device") > full

        eventually(is_full, "the server says that its disk is full")
        stage.struck()
        lane.target.released.set()
        time.sleep(AWAY_S)
        ballast.unlink()
        finish(stage, story, "forward")


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


def new_code(direction: str, change: str) -> Play:
    """Workers restart, while the call is out, with a tools file in which the tool is missing, or is
    another one. What must wait is parked with its reason; with the old file it goes on."""

    def play(stage: Stage, kind: str) -> None:
        lane = stage.lane
        story = set_out(stage, direction, kind, lambda s: meets(s, direction, "lost"))
        arrives(story, direction)
        text = lane.tools.read_text(encoding="utf-8")
        other = lane.folder / "other-tools.toml"
        changed = text.replace('version = "1"', 'version = "2"')
        other.write_text("" if change == "missing" else changed, encoding="utf-8")
        with workers_with(lane, SAGA_TOOLS=str(other)):
            stage.struck()
            lane.target.released.set()
            time.sleep(AWAY_S)
        finish(stage, story, direction)

    return play


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

    def add(point: str, fault: str, direction: str, play: Play, kind: str = "probed") -> None:
        rows.append(Row(point, fault, direction, kind, play))

    for direction in ("forward", "compensate"):
        for change in ("missing", "changed"):
            add("P25", f"the tool is {change}", direction, new_code(direction, change))
        for point in ("P10", "P13"):
            for number in (signal.SIGINT, signal.SIGKILL):
                what = "restarted" if number == signal.SIGINT else "killed"
                play = restarted(point, number, direction)
                add("P26", f"Postgres {what} at {point}", direction, play)
        add("P26", "57P01, eight times", direction, backends_ended(direction))
        add("P26", "25006: read only past the lease", direction, read_only(direction))
        for state in ("40001", "40P01", "53100", "55P03"):
            add("P26", f"{state} at every write", direction, refused(state, direction))
        add("P27", "other time zones", direction, other_zone(direction))
        add("P27", "clock +2 h, then -3 h", direction, clock_steps(direction, "+2h", "-3h"))
    add("P26", "a real deadlock", "forward", deadlocked)
    add("P26", "a snapshot held", "compensate", snapshot_held)
    if can_mount():
        add("P26", "disk full (ENOSPC)", "forward", disk_full)
    else:
        print("NOT RUN: a really full disk needs the right to mount; 53100 stands for it.")
    return rows


ROWS = _rows()
