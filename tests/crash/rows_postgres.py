"""P26: a Postgres that restarts, refuses, locks, fills its disk, or is looked at for long."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path

import httpx
import psycopg

from tests.crash.lane import Lane
from tests.crash.rows import (
    AWAY_S,
    ROADS,
    Play,
    Row,
    Stage,
    arrives,
    finish,
    meets,
    out_during,
    set_out,
)
from tests.running import eventually


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


def _insist(lane: Lane, statement: str, role: str = "saga") -> None:
    def is_done() -> bool:
        with suppress(psycopg.Error):
            lane.sql(statement, role=role)
            return True
        return False

    eventually(is_done, statement)


@contextmanager
def read_only(lane: Lane) -> Iterator[None]:
    """The server accepts no writes for a while (25006), as a primary that was demoted."""
    lane.sql("ALTER SYSTEM SET default_transaction_read_only = on", role="postgres")
    lane.sql("SELECT pg_reload_conf()", role="postgres")
    try:
        yield
    finally:
        lane.sql("ALTER SYSTEM RESET default_transaction_read_only", role="postgres")
        lane.sql("SELECT pg_reload_conf()", role="postgres")


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
        _insist(lane, "ALTER TABLE ledger_entry SET TABLESPACE small", "postgres")
        yield place
    finally:
        (place / "ballast").unlink(missing_ok=True)
        _insist(lane, "ALTER TABLE ledger_entry SET TABLESPACE pg_default", "postgres")
        _insist(lane, "DROP TABLESPACE small", "postgres")
        subprocess.run(["umount", "-l", place], check=True)


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


def _rows() -> list[Row]:
    rows = []

    def add(fault: str, direction: str, play: Play) -> None:
        rows.append(Row("P26", fault, direction, "probed", play))

    for direction in ("forward", "compensate"):
        for point in ("P10", "P13"):
            for number, what in ((signal.SIGINT, "restarted"), (signal.SIGKILL, "killed")):
                add(f"Postgres {what} at {point}", direction, restarted(point, number, direction))
        add("57P01, eight times", direction, backends_ended(direction))
        add("25006: read only past the lease", direction, out_during(read_only, direction))
        for state in ("40001", "40P01", "53100", "55P03"):
            add(
                f"{state} at every write",
                direction,
                out_during(partial(refusing, sqlstate=state), direction),
            )
    add("a real deadlock", "forward", deadlocked)
    add("a snapshot held", "compensate", snapshot_held)
    if can_mount():
        add("disk full (ENOSPC)", "forward", disk_full)
    else:
        print("NOT RUN: a really full disk needs the right to mount; 53100 stands for it.")
    return rows


ROWS = _rows()
