"""The first line of a saga's page: is it stuck, on whom, since when, what is safe to do.

A pure decision over what the timeline read; the clock stays outside.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from ledger.models import Freeze
from ledger.queries.pages_timeline import StepRow, Timeline, doubted
from ledger.queries.residue import Left
from ledger.spoken import spoken
from ledger.states import SagaState, StepState


@dataclass(frozen=True, slots=True)
class Headline:
    """`what` is the answer, `since` its beginning, `safe` what may be pressed (or not)."""

    tone: str
    what: str
    safe: str
    since: datetime | None = None
    on: StepRow | None = None
    is_frozen: bool = False


# Which step tells how the saga is, most urgent first.
_URGENCY = (
    StepState.STUCK,
    StepState.UNKNOWN,
    StepState.AWAITING_APPROVAL,
    StepState.CHANGE_REQUESTED,
    StepState.COMPENSATING,
    StepState.EXECUTING,
    StepState.QUEUED,
)
_SAFE = {
    StepState.STUCK: (
        "bad",
        "is stuck",
        (
            "Open the step: what you may do about it is listed there, each with what it does. "
            "Do not run it by hand before you have looked at the target."
        ),
    ),
    StepState.UNKNOWN: (
        "doubt",
        "may or may not have happened",
        (
            "It is being found out. If you can see the target, open the step and answer; "
            "nothing runs twice in the meantime."
        ),
    ),
    StepState.AWAITING_APPROVAL: (
        "wait",
        "waits for a person",
        "Open the request and decide. Nothing runs before that.",
    ),
    StepState.CHANGE_REQUESTED: (
        "wait",
        "waits for the agent's next version",
        "Nothing to press: the agent was asked for a change.",
    ),
    StepState.COMPENSATING: (
        "back",
        "is being undone",
        "Nothing to press: the way back cannot be cancelled.",
    ),
    StepState.EXECUTING: ("live", "is calling its target", "Nothing to press."),
    StepState.QUEUED: ("live", "is next in line", "Nothing to press."),
}


def _most_urgent(rows: Sequence[StepRow]) -> StepRow | None:
    known = [row for row in rows if row.step.state in _URGENCY]
    return min(known, key=lambda row: _URGENCY.index(StepState(row.step.state)), default=None)


def _since(row: StepRow) -> datetime:
    """When the step came into its present state, as its last entry with a state tells it."""
    told = [entry.at for entry in row.entries if entry.state == row.step.state]
    return told[-1] if told else row.step.created_at


def _ended(timeline: Timeline) -> Headline:
    saga = timeline.saga
    completed = saga.state == SagaState.COMPLETED
    if timeline.residue:
        what = "Completed" if completed else "Ended backwards"
        return _left(what, timeline.residue, saga.ended_at)
    if completed:
        return Headline("good", "Completed.", "Nothing to do.", saga.ended_at)
    corrected = sum(row.step.state == StepState.CORRECTED for row in timeline.rows)
    if corrected:
        what = "Ended backwards; what cannot be undone was answered by a correction."
        return Headline("undone", what, "Nothing to do.", saga.ended_at)
    safe = "Nothing is left in the world, nothing to do."
    return Headline("undone", "Ended backwards, every effect was undone.", safe, saga.ended_at)


def _left(what: str, left: Sequence[Left], at: datetime | None) -> Headline:
    """What is there and what may be there are told apart: certainty is never made up."""
    doubtful = sum(one.is_doubtful for one in left)
    told = []
    if there := len(left) - doubtful:
        told.append(f"{_effects(there, 'is', 'are')} still out in the world.")
    if doubtful:
        told.append(f"{_effects(doubtful, 'may be', 'may be')} out there; nobody knows.")
    if there:
        return Headline("back", f"{what}, and something is left.", " ".join([*told, _BELOW]), at)
    return Headline("doubt", f"{what}, and something may be left.", f"{told[0]} {_BELOW}", at)


_BELOW = "See the residue below."


def _effects(count: int, one: str, more: str) -> str:
    return f"One effect {one}" if count == 1 else f"{count} effects {more}"


def _frozen(timeline: Timeline) -> Headline | None:
    if not timeline.freezes:
        return None
    freeze = timeline.freezes[0]
    return _held(freeze, f"Frozen by {_who(freeze)}: {freeze.reason}")


def _held(freeze: Freeze, what: str, on: StepRow | None = None) -> Headline:
    safe = "Nothing new leaves until the freeze is lifted."
    return Headline("wait", what, safe, freeze.created_at, on, is_frozen=True)


def _who(freeze: Freeze) -> str:
    return freeze.created_by.partition(":")[2] or freeze.created_by


def headline(timeline: Timeline) -> Headline:
    """Say the one thing that a person on call wants to know first."""
    saga = timeline.saga
    if saga.ended_at:
        return _ended(timeline)
    row = _most_urgent(timeline.rows)
    if row is not None and row.step.state in (StepState.STUCK, StepState.UNKNOWN):
        return _on_step(row)
    frozen = _frozen(timeline)
    if frozen:
        return frozen
    if row is not None:
        return _on_step(row)
    if saga.state == SagaState.COMPENSATING:
        return Headline("back", "Going back.", "Nothing to press.", saga.updated_at)
    last = max((r.step.finished_at or r.step.created_at for r in timeline.rows), default=None)
    return Headline(
        "quiet",
        "Open, and nothing is running: the agent has not said that it is finished.",
        "Nothing to press. The agent may add steps, complete or abort the saga.",
        last or saga.created_at,
    )


def _on_step(row: StepRow) -> Headline:
    if row.freeze is not None:
        what = f"is held: {row.freeze.value} is frozen by {_who(row.freeze)}: {row.freeze.reason}"
        return _held(row.freeze, what, row)
    if row.next_try is not None and row.next_try.parked_why:
        why = spoken(row.next_try.parked_why).words
        return Headline("wait", "is parked", why, _since(row), row)
    if row.awaited:
        what = f"waits for a yes to its {row.awaited}"
        safe = "Open the request and decide. Nothing more is undone before that."
        return Headline("wait", what, safe, _since(row), row)
    if row.step.state == StepState.COMPENSATING and row.step.held_why:
        return Headline(
            "doubt", doubted(row.step), spoken(row.step.held_why).words, _since(row), row
        )
    tone, what, safe = _SAFE[StepState(row.step.state)]
    return Headline(tone, what, safe, _since(row), row)
