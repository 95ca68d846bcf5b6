"""A drill, leg by leg: what comes next, and what it all came to. Pure decisions.

    start → execute → found → seen → undo → undone → unseen → end

`found` and `undone` look with the tool's own probes, `seen` and `unseen` with the drill's
check; a drill has those that its tool has. What execute left is undone even when a look has
failed: a drill cleans up after itself wherever it can.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from ledger.outcomes import Applied, Done, Failed, NotApplied, Outcome, Sighting, StillUnknown
from ledger.states import Direction


class Leg(StrEnum):
    START = "start"
    EXECUTE = "execute"
    FOUND = "found"
    SEEN = "seen"
    UNDO = "undo"
    UNDONE = "undone"
    UNSEEN = "unseen"
    END = "end"


class DrillState(StrEnum):
    WAITING = "waiting"
    RUNNING = "running"
    WORKED = "worked"
    FAILED = "failed"
    STOPPED = "stopped"
    REFUSED = "refused"
    INTERRUPTED = "interrupted"
    EXPIRED = "expired"


DRILL_MEANING: Mapping[DrillState, str] = {
    DrillState.WAITING: "A worker will take it.",
    DrillState.RUNNING: "A worker is at it.",
    DrillState.WORKED: "It was done and undone in the sandbox, and every look agreed.",
    DrillState.FAILED: "Something did not do what a saga would rely on.",
    DrillState.STOPPED: "A freeze came in between.",
    DrillState.REFUSED: "The worker could not take it; nothing was called.",
    DrillState.INTERRUPTED: "The worker went away in the middle of it.",
    DrillState.EXPIRED: "No worker took it in time; nothing was called.",
}
# How a drill can end. The others are no end, or the absence of one.
ENDS = (
    DrillState.WORKED,
    DrillState.FAILED,
    DrillState.STOPPED,
    DrillState.REFUSED,
    DrillState.INTERRUPTED,
)
# A wish that nobody could fulfil for this long is stale: whoever asked looks elsewhere by now.
TAKEN_WITHIN_S = 600
# Legs that change something in the sandbox: a freeze is asked before each.
CHANGING = frozenset({Leg.EXECUTE, Leg.UNDO})
LEFT_BEHIND = "What execute did is left in the sandbox."


@dataclass(frozen=True, slots=True)
class Told:
    """What came of one leg. `result` is kept for the undo, and only in memory."""

    leg: Leg
    ok: bool
    outcome: str
    said: str = ""
    result: Any = None


@dataclass(frozen=True, slots=True)
class Verdict:
    """How a drill ended, in one word and one sentence."""

    state: DrillState
    said: str


def legs_of(undo: Direction, probed: frozenset[Direction], *, has_check: bool) -> tuple[Leg, ...]:
    """The legs between start and end. A correction undoes nothing, so nothing can be gone."""
    is_undone = undo is Direction.COMPENSATE
    planned = {
        Leg.EXECUTE: True,
        Leg.FOUND: Direction.FORWARD in probed,
        Leg.SEEN: has_check,
        Leg.UNDO: True,
        Leg.UNDONE: undo in probed or (is_undone and Direction.FORWARD in probed),
        Leg.UNSEEN: has_check and is_undone,
    }
    return tuple(leg for leg, wanted in planned.items() if wanted)


def after(planned: Sequence[Leg], told: Sequence[Told], undo: Direction) -> Leg | Verdict:
    """The next leg, or the verdict when there is none."""
    came = {one.leg: one for one in told}
    execute = came.get(Leg.EXECUTE)
    if execute is None:
        return planned[0]
    if execute.outcome == "failed":
        return Verdict(DrillState.FAILED, "Execute failed, so there was nothing to undo.")
    if not execute.ok and not _is_known_to_be_there(planned, came):
        if Leg.FOUND in planned and Leg.FOUND not in came:
            return Leg.FOUND  # as a saga does with a step in doubt: look, and never guess
        return Verdict(DrillState.FAILED, "Nobody knows whether execute did anything.")
    undone = came.get(Leg.UNDO)
    if undone is not None and undone.outcome == "failed":
        return Verdict(DrillState.FAILED, f"{_name(undo)} failed. {LEFT_BEHIND}")
    following = next((leg for leg in planned if leg not in came), None)
    return following or _verdict(planned, told, undo)


def _is_known_to_be_there(planned: Sequence[Leg], came: Mapping[Leg, Told]) -> bool:
    return Leg.FOUND in planned and Leg.FOUND in came and came[Leg.FOUND].ok


def _verdict(planned: Sequence[Leg], told: Sequence[Told], undo: Direction) -> Verdict:
    wrong = next((one for one in told if not one.ok), None)
    if wrong is not None:
        return Verdict(DrillState.FAILED, f"{SENTENCES[wrong.leg].format(undo=_name(undo))}")
    if undo is Direction.CORRECT:
        return Verdict(DrillState.WORKED, "Executed, and its correction was sent.")
    if not {Leg.UNDONE, Leg.UNSEEN}.isdisjoint(planned):
        return Verdict(DrillState.WORKED, "Executed, undone, and seen to be gone.")
    return Verdict(
        DrillState.WORKED,
        "Executed, and the undo says that it is done; there is no probe or check to see it with.",
    )


def _name(undo: Direction) -> str:
    return undo.value.capitalize()


SENTENCES: Mapping[Leg, str] = {
    Leg.EXECUTE: "Execute gave no clear answer.",
    Leg.FOUND: "The probe did not find what execute did: a saga in doubt would run it twice.",
    Leg.SEEN: "The check did not see what execute did.",
    Leg.UNDO: "{undo} gave no clear answer.",
    Leg.UNDONE: "{undo} said that it was done, and the probe does not agree.",
    Leg.UNSEEN: "{undo} said that it was done, and the check still sees the effect.",
}


def told_of_call(leg: Leg, outcome: Outcome, said: str) -> Told:
    """What execute or the undo came to."""
    match outcome:
        case Done(result):
            return Told(leg, True, "done", said, result)
        case Failed(error):
            return Told(leg, False, "failed", error)
    return Told(leg, False, "unknown", outcome.reason)


def told_of_look(leg: Leg, sighting: Sighting, said: str, *, wants_it: bool) -> Told:
    """What a look came to. `wants_it`: whether finding it is the good answer."""
    match sighting:
        case Applied(result):
            return Told(leg, wants_it, "found" if wants_it else "still there", said, result)
        case NotApplied():
            return Told(leg, not wants_it, "not found" if wants_it else "gone")
        case StillUnknown(reason):
            return Told(leg, False, "unknown", reason)
