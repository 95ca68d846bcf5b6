"""What a row is, and the roads that lead a saga to its fault."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass

import httpx

from tests.crash.lane import Lane
from tests.crash.story import Story
from tests.crash.target import Mood
from tests.running import eventually

# Longer than a lease of a lane.
AWAY_S = 2.5


@dataclass
class Stage:
    """A lane with its cast, and what the row running on it has to tell."""

    lane: Lane
    agent: str
    person: str
    oncall: httpx.Client
    fault_at: float = 0.0
    effects: int = 0
    state: str = ""
    took_s: float = 0.0

    def story(self, kind: str) -> Story:
        return Story(self.lane, self.agent, self.person, self.oncall, kind)

    def struck(self, at: float | None = None) -> None:
        """The fault has happened: recovery is counted from here."""
        self.fault_at = time.monotonic() if at is None else at

    def end(self, story: Story, *states: str) -> None:
        """It came to rest by itself, and the invariants hold."""
        self.state = story.rest(*states)
        self.took_s = time.monotonic() - self.fault_at
        story.assert_sound()
        self.effects = sum(len(self.lane.target.done(name)) for name in story.names.values())


# How a row goes on a stage, at a target of a kind.
Play = Callable[[Stage, str], None]


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the table: at which point, what happens, to which direction, at which target."""

    point: str
    fault: str
    direction: str
    kind: str
    play: Play

    @property
    def name(self) -> str:
        return f"{self.point} · {self.fault} · {self.direction} · {self.kind}"


@dataclass(frozen=True, slots=True)
class Road:
    """How a saga gets to its fault, in one direction: whose action it is, and how it must end."""

    step: str
    action: str
    about: str
    ends: str


ROADS = {
    "forward": Road("a", "make", "forward", "completed"),
    "pivot": Road("p", "pay", "forward", "completed"),
    "approved": Road("r", "refund", "forward", "completed"),
    "compensate": Road("b", "undo", "compensate", "compensated"),
    "correct": Road("m", "sorry", "correct", "compensated"),
}


def set_out(stage: Stage, direction: str, kind: str, arm: Callable[[Story], None]) -> Story:
    """Tell a saga up to the moment before the fault. `arm` prepares that."""
    story = stage.story(kind)
    for step_id in ("a", "b", "c", "m", "p", "r"):
        story.names[step_id] = f"{story.task}-{step_id}"
    if direction == "forward":
        arm(story)
        story.open(a="make", b="make")
    elif direction == "pivot":
        story.open(a="make")
        story.wait_for("a", "committed")
        arm(story)
        story.propose("p", "pay")
    elif direction == "approved":
        story.open(a="make", r="refund")
        request = story.request()
        story.wait_for("a", "committed")
        arm(story)
        story.approve(request)
    else:
        stage.lane.target.expect(story.names["c"], "make", "refuse")
        arm(story)
        middle = "make" if direction == "compensate" else "mail"
        story.open(a="make", **{ROADS[direction].step: middle}, c="make")
    return story


def finish(stage: Stage, story: Story, direction: str) -> None:
    """What happens after the fault by itself; only people's answers are given again."""
    road = ROADS[direction]
    if direction == "approved":
        _until_it_ran(stage, story)
    if road.ends == "completed":
        story.complete()
    stage.end(story, *(("stuck",) if story.kind == "blind" else ()), road.ends)


def _until_it_ran(stage: Stage, story: Story) -> None:
    """A yes counts for one run: when that certainly did not happen, people are asked again."""

    def has_moved() -> bool:
        return story.states()["r"] in ("committed", "awaiting_approval") or (
            story.document()["state"] == "stuck"
        )

    eventually(has_moved, "the approved step ran, or is asked for again")
    if story.states()["r"] == "awaiting_approval":
        assert not stage.lane.target.done(story.names["r"]), "asked again after it happened"
        story.approve(story.request())


def meets(story: Story, direction: str, *moods: Mood) -> None:
    road = ROADS[direction]
    if {"hold", "hold_first", "lost"} & set(moods):
        story.lane.target.released.clear()
    story.lane.target.expect(story.names[road.step], road.action, *moods)


def arrives(story: Story, direction: str) -> None:
    """Until the request is at the target."""
    road = ROADS[direction]
    met = (story.names[road.step], road.action)
    eventually(lambda: story.lane.target.arrived[met] > 0, "the call is out")


def out_during(
    trouble: Callable[[Lane], AbstractContextManager[None]], direction: str, mood: Mood = "hold"
) -> Play:
    """The call comes back while there is trouble, which lasts longer than its lease."""

    def play(stage: Stage, kind: str) -> None:
        story = set_out(stage, direction, kind, lambda s: meets(s, direction, mood))
        arrives(story, direction)
        with trouble(stage.lane):
            stage.struck()
            stage.lane.target.released.set()
            time.sleep(AWAY_S)
        finish(stage, story, direction)

    return play
