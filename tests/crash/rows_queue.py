"""P4 to P9 and P15: between the commit and the claim, where Redis only rings."""

from __future__ import annotations

import signal
import time

from tests.crash.lane import WORKERS
from tests.crash.rows import Play, Row, Stage
from tests.crash.story import Story
from tests.running import eventually


def killed(point: str) -> Play:
    """SIGKILL of the relay or worker that stands at the point, with work waiting."""

    def play(stage: Stage, kind: str) -> None:
        story = stage.story(kind)
        stage.lane.arm(point)
        if point == "P4":  # reached at every poll: it has heard nothing of what comes now
            caught = stage.lane.caught(point)
            story.open(a="make", b="make")
        else:
            story.open(a="make", b="make")
            caught = stage.lane.caught(point)
        stage.struck(caught.kill())
        _ends(stage, story)

    return play


def _ends(stage: Stage, story: Story) -> None:
    story.complete()
    stage.end(story, "completed")


def deaf(stage: Stage, kind: str) -> None:
    """The relay's connections are cut as the step is committed: no NOTIFY reaches anybody."""
    story = stage.story(kind)
    cable = stage.lane.cables["relay"]
    cable.severed = True
    cable.cut()
    story.open(a="make", b="make")
    stage.struck()
    time.sleep(1)
    cable.severed = False
    _ends(stage, story)


def rung_twice(stage: Stage, kind: str) -> None:
    """RQ delivers the same job again, as it does when the relay dies before it has noted the ring,
    and as its own clean-up of abandoned jobs does."""
    story = stage.story(kind)
    stage.lane.arm("P12", "forward")
    story.open(a="make", b="make")
    caught = stage.lane.caught("P12")
    stage.struck()
    (shift,) = stage.lane.sql(
        "SELECT id FROM ledger_shift WHERE started_at IS NOT NULL AND ended_at IS NULL"
    )
    code = (
        "from uuid import UUID; from ledger.outbox import ring; "
        f"[ring(UUID('{shift['id']}')) for _ in range(3)]; print('rung')"
    )
    assert "rung" in stage.lane.manage("shell", "-c", code)
    caught.let_go()
    _ends(stage, story)
    (begun,) = stage.lane.sql(
        "SELECT count(*) AS n FROM ledger_attempt a JOIN ledger_step s ON s.id = a.step_id "
        "WHERE s.saga_id = %s",
        story.saga,
    )
    assert begun["n"] == 2, "a step was claimed twice"


def abandoned(stage: Stage, kind: str) -> None:
    """The shift has ended and RQ does not know: its job comes again, and is refused."""
    story = stage.story(kind)
    stage.lane.arm("P15")
    story.open(a="make", b="make")
    caught = stage.lane.caught("P15")
    story.wait_for("b", "committed")
    (shift,) = stage.lane.sql(
        "SELECT id FROM ledger_shift ORDER BY ended_at DESC NULLS LAST LIMIT 1"
    )
    stage.struck(caught.kill())
    code = (
        "from uuid import UUID; from ledger.outbox import ring; "
        f"ring(UUID('{shift['id']}')); print('rung')"
    )
    assert "rung" in stage.lane.manage("shell", "-c", code)
    _ends(stage, story)


def emptied(stage: Stage, kind: str) -> None:
    """FLUSHALL after the ring and before any worker has heard it."""
    story = stage.story(kind)
    with stage.lane.without(*WORKERS):
        story.open(a="make", b="make")
        eventually(lambda: _has_rung(stage), "the relay has rung")
        with stage.lane.redis() as client:
            client.flushall()
        stage.struck()
    _ends(stage, story)


def _has_rung(stage: Stage) -> bool:
    rung = "SELECT 1 FROM ledger_shift WHERE started_at IS NULL AND lease_until > clock_timestamp()"
    return bool(stage.lane.sql(rung))


def failed_over(stage: Stage, kind: str) -> None:
    """Redis dies after the ring and comes back without its data, as a stale replica would."""
    story = stage.story(kind)
    with stage.lane.without(*WORKERS):
        story.open(a="make", b="make")
        eventually(lambda: _has_rung(stage), "the relay has rung")
        with stage.lane.redis() as client:
            client.flushall()
            client.config_set("appendonly", "no")
        stage.lane.restart("valkey", signal.SIGKILL)
        stage.struck()
    _ends(stage, story)


def bell_stalled(stage: Stage, kind: str) -> None:
    """The relay's connections to Redis stay open and say nothing, for longer than it waits."""
    story = stage.story(kind)
    bell, log = stage.lane.bells["relay"], stage.lane.folder / "relay.log"
    before = log.read_text().count("Redis did not answer")
    bell.stalled = True
    try:
        story.open(a="make", b="make")
        stage.struck()
        # A relay that waited for ever would sweep no lease and expire no request either.
        eventually(
            lambda: log.read_text().count("Redis did not answer") > before,
            "the relay gives up waiting",
            20,
        )
    finally:
        bell.stalled = False
    _ends(stage, story)


def bell_dead(stage: Stage, kind: str) -> None:
    """Redis stays away for a while: whoever works goes on, and the rest waits in Postgres."""
    story = stage.story(kind)
    bells = [stage.lane.bells[name] for name in ("relay", *WORKERS)]
    for bell in bells:
        bell.severed = True
        bell.cut()
    try:
        story.open(a="make", b="make")
        time.sleep(3)
        assert story.states() == {"a": "queued", "b": "waiting"}
    finally:
        for bell in bells:
            bell.severed = False
    stage.struck()
    _ends(stage, story)


ROWS = [
    Row("P4", "SIGKILL of the relay", "forward", "probed", killed("P4")),
    Row("P4", "relay cut off from Postgres", "forward", "probed", deaf),
    Row("P5", "SIGKILL of the relay", "forward", "probed", killed("P5")),
    Row("P6", "SIGKILL of the relay", "forward", "probed", killed("P6")),
    Row("P6", "the same job three times", "forward", "probed", rung_twice),
    Row("P7", "FLUSHALL after the ring", "forward", "probed", emptied),
    Row("P7", "Redis back without its data", "forward", "probed", failed_over),
    Row("P7", "Redis stalled for the relay", "forward", "probed", bell_stalled),
    Row("P7", "Redis away", "forward", "probed", bell_dead),
    Row("P8", "SIGKILL of the worker", "forward", "probed", killed("P8")),
    Row("P9", "SIGKILL of the worker", "forward", "probed", killed("P9")),
    Row("P15", "SIGKILL, and the job comes again", "forward", "probed", abandoned),
]
