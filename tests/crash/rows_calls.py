"""P10 to P17 and P19: around the call, in every direction, at every kind of target."""

from __future__ import annotations

import signal
import time
from collections import Counter
from contextlib import suppress

from tests.crash.rows import ROADS, Play, Row, Stage, arrives, finish, meets, set_out
from tests.crash.target import Mood
from tests.running import eventually

LEASE_S = 2.0
EVERY = ("dedupes", "probed", "blind")
KNOWABLE = ("dedupes", "probed")
# Approved steps and the pivot run as every other step does: what differs is what follows.
KINDS = {
    "forward": EVERY,
    "compensate": EVERY,
    "correct": KNOWABLE,
    "pivot": ("probed", "blind"),
    "approved": ("probed",),
}


def at_point(point: str, direction: str) -> Play:
    """SIGKILL of the worker that stands at the point."""

    def play(stage: Stage, kind: str) -> None:
        about = ROADS[direction].about
        story = set_out(stage, direction, kind, lambda _: stage.lane.arm(point, about))
        stage.struck(stage.lane.caught(point).kill())
        finish(stage, story, direction)

    return play


def mid_answer(direction: str) -> Play:
    """SIGKILL between the first and the last byte of the target's answer."""

    def play(stage: Stage, kind: str) -> None:
        road = ROADS[direction]
        story = set_out(stage, direction, kind, lambda s: meets(s, direction, "hold"))
        arrives(story, direction)
        stage.lane.arm("P11", "POST")
        stage.lane.target.released.set()
        stage.struck(stage.lane.caught("P11").kill())
        assert len(stage.lane.target.done(story.names[road.step], road.action)) == 1
        finish(stage, story, direction)

    return play


def killed_in_call(direction: str, mood: Mood) -> Play:
    """SIGKILL while the call is out. `hold`: the effect is there. `lost`: it never comes.
    `hold_first`: it comes after the death of whoever asked for it."""

    def play(stage: Stage, kind: str) -> None:
        story = set_out(stage, direction, kind, lambda s: meets(s, direction, mood))
        arrives(story, direction)
        stage.struck(stage.lane.working_on(story.saga).kill())
        stage.lane.target.released.set()
        finish(stage, story, direction)

    return play


def broken_wire(direction: str, mood: Mood) -> Play:
    """Nobody dies; the answer does not come."""

    def play(stage: Stage, kind: str) -> None:
        story = set_out(stage, direction, kind, lambda s: meets(s, direction, mood))
        arrives(story, direction)
        stage.struck()
        finish(stage, story, direction)

    return play


def refused_then(direction: str) -> Play:
    """The effect is there, its answer breaks off, and what is sent again is refused: that says
    nothing of the first attempt, so the step is still in doubt."""

    def play(stage: Stage, kind: str) -> None:
        moods: tuple[Mood, Mood] = ("reset", "refuse")
        story = set_out(stage, direction, kind, lambda s: meets(s, direction, *moods))
        arrives(story, direction)
        stage.struck()
        finish(stage, story, direction)

    return play


def timed_out(direction: str) -> Play:
    """The effect is there; its answer comes long after the tool's timeout."""

    def play(stage: Stage, kind: str) -> None:
        story = set_out(stage, direction, kind, lambda s: meets(s, direction, "hold"))
        arrives(story, direction)
        stage.struck()
        time.sleep(LEASE_S + 1)
        stage.lane.target.released.set()
        finish(stage, story, direction)

    return play


def lost_commit(direction: str, loss: str) -> Play:
    """The outcome's COMMIT: carried out and not answered, or never seen by the server."""

    def play(stage: Stage, kind: str) -> None:
        about = ROADS[direction].about
        story = set_out(stage, direction, kind, lambda _: stage.lane.arm("P13", about))
        caught = stage.lane.caught("P13")
        cable = stage.lane.cables[caught.program.name]
        cable.lost.clear()
        cable.lose = loss  # type: ignore[assignment]
        stage.struck(caught.let_go())
        assert cable.lost.wait(10), "no COMMIT was lost"
        finish(stage, story, direction)
        facts = Counter((e["kind"], e["step_id"]) for e in story.entries())
        assert all(n == 1 for (kind, _), n in facts.items() if kind == "step.committed"), facts

    return play


def stopped(direction: str) -> Play:
    """SIGSTOP past the lease while the call is out; SIGCONT when the step has been reconciled.
    The late answer is evidence, and changes nothing."""

    def play(stage: Stage, kind: str) -> None:
        story = set_out(stage, direction, kind, lambda s: meets(s, direction, "hold"))
        arrives(story, direction)
        program = stage.lane.working_on(story.saga)
        program.stop()
        try:
            stage.struck()
            stage.lane.target.released.set()
            finish(stage, story, direction)
            before = story.states()
        finally:
            program.signal(signal.SIGCONT)
        eventually(lambda: story.kinds()["attempt.late"] == 1, "the evidence is on the timeline")
        if kind == "blind":
            # Evidence settles what nobody could look up; no person was needed.
            story.wait_for_saga(ROADS[direction].ends)
            stage.end(story, ROADS[direction].ends)
        else:
            assert story.states() == before
        story.assert_sound()

    return play


def stopped_at(direction: str, point: str) -> Play:
    """SIGSTOP past the lease at a point; SIGCONT afterwards."""

    def play(stage: Stage, kind: str) -> None:
        about = ROADS[direction].about
        story = set_out(stage, direction, kind, lambda _: stage.lane.arm(point, about))
        caught = stage.lane.caught(point)
        program = caught.program
        program.stop()
        caught.let_go()
        try:
            stage.struck()
            finish(stage, story, direction)
            before = story.states()
        finally:
            program.signal(signal.SIGCONT)
        time.sleep(1.0)  # whatever it does when it wakes, it does at once
        assert story.states() == before
        story.assert_sound()

    return play


def cut_off(direction: str, mood: Mood) -> Play:
    """The worker loses Postgres while its call is out, for longer than the lease."""

    def play(stage: Stage, kind: str) -> None:
        story = set_out(stage, direction, kind, lambda s: meets(s, direction, mood))
        arrives(story, direction)
        cable = stage.lane.cables[stage.lane.working_on(story.saga).name]
        cable.severed = True
        cable.cut()
        stage.struck()
        stage.lane.target.released.set()
        time.sleep(LEASE_S + 1)
        cable.severed = False
        finish(stage, story, direction)

    return play


def stalled(direction: str) -> Play:
    """The worker's connections to Postgres stay open and say nothing, past the lease."""

    def play(stage: Stage, kind: str) -> None:
        story = set_out(stage, direction, kind, lambda s: meets(s, direction, "hold"))
        arrives(story, direction)
        cable = stage.lane.cables[stage.lane.working_on(story.saga).name]
        cable.stalled = True
        stage.struck()
        stage.lane.target.released.set()
        time.sleep(LEASE_S + 1)
        cable.stalled = False
        finish(stage, story, direction)

    return play


def power_cut(direction: str) -> Play:
    """Everything dies at once while the call is out: web, relay, workers, Postgres, Redis."""

    def play(stage: Stage, kind: str) -> None:
        lane = stage.lane
        story = set_out(stage, direction, kind, lambda s: meets(s, direction, "hold"))
        arrives(story, direction)
        for program in lane.programs.values():
            program.signal(signal.SIGKILL)
        valkey = lane.server_pid("valkey")
        lane.restart("postgres", signal.SIGKILL)
        with suppress(ProcessLookupError):
            lane.kill_pid(valkey)
        stage.struck()
        lane.target.released.set()
        finish(stage, story, direction)

    return play


def _rows() -> list[Row]:
    rows: list[Row] = []

    def add(point: str, fault: str, play: Play, direction: str, *kinds: str) -> None:
        mine = [kind for kind in kinds if kind in KINDS[direction]]
        rows.extend(Row(point, fault, direction, kind, play) for kind in mine)

    for direction, road in ROADS.items():
        backwards = road.about != "forward"
        names = {p: "P19" if backwards else p for p in ("P10", "P11", "P12", "P13", "P14")}
        for point in ("P10", "P12", "P13", "P14"):
            add(names[point], f"SIGKILL at {point}", at_point(point, direction), direction, *EVERY)
        p11 = names["P11"]
        add(p11, "SIGKILL in the answer", mid_answer(direction), direction, *KNOWABLE)
        killed = killed_in_call
        add(p11, "SIGKILL, effect there", killed(direction, "hold"), direction, *EVERY)
        add(p11, "SIGKILL, request lost", killed(direction, "lost"), direction, *KNOWABLE)
        add(p11, "SIGKILL, effect later", killed(direction, "hold_first"), direction, *KNOWABLE)
        add(p11, "reset after the effect", broken_wire(direction, "reset"), direction, *EVERY)
        add(p11, "reset after it, then refused", refused_then(direction), direction, "dedupes")
        add(p11, "reset, no effect", broken_wire(direction, "swallow"), direction, *KNOWABLE)
        add(p11, "timeout, effect there", timed_out(direction), direction, *KNOWABLE)
        p13 = names["P13"]
        add(p13, "COMMIT done, answer lost", lost_commit(direction, "answer"), direction, "probed")
        add(p13, "COMMIT never arrived", lost_commit(direction, "request"), direction, "probed")
        add("P16", "SIGSTOP in the call", stopped(direction), direction, *EVERY)
        add("P16", "SIGSTOP before the call", stopped_at(direction, "P10"), direction, *KNOWABLE)
        add("P16", "SIGSTOP in the writing", stopped_at(direction, "P13"), direction, "probed")
        add("P16", "Postgres cut off", cut_off(direction, "hold"), direction, *KNOWABLE)
        add("P16", "Postgres stalled", stalled(direction), direction, "probed")
        add("P17", "effect after the probe", broken_wire(direction, "late"), direction, *KNOWABLE)
    for direction in ("forward", "compensate", "pivot"):
        add("P26", "power cut in the call", power_cut(direction), direction, "probed")
    return rows


ROWS = _rows()
