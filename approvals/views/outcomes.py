"""What a person reads after a decision, and what a no would cost. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from approvals.models import Decision
from approvals.queries import state_sentence
from approvals.queries_pages import RequestRow
from approvals.states import Answer, ApprovalState
from ledger.doubt import may_have_happened
from ledger.queries.pages_timeline import StepLine
from ledger.states import (
    SAGA_ENDED,
    STEP_FINISHED,
    STEP_IN_DOUBT,
    STEP_MEANING,
    Direction,
    StepState,
    Tier,
)
from ledger.templatetags.console import STEP_TONE


@dataclass(frozen=True, slots=True)
class Banner:
    tone: str
    what: str
    then: str
    when: datetime | None


@dataclass(frozen=True, slots=True)
class Vote:
    who: str
    said: str
    answer: str
    at: datetime
    reason: str
    tone: str
    icon: str


_SAID = {
    Answer.APPROVE: ("approved", "good", "committed"),
    Answer.REJECT: ("rejected", "bad", "rejected"),
    Answer.CHANGE: ("asked for a change", "wait", "change_requested"),
}


def votes(row: RequestRow) -> list[Vote]:
    """Who said what, when and why, in order."""
    return [
        Vote(_name(found), _said(found, said), found.answer, found.at, found.reason, tone, icon)
        for found in row.answers
        for said, tone, icon in [_SAID[Answer(found.answer)]]
    ]


def _name(found: Decision) -> str:
    """Both names, when the right was another's (design section 6, delegation)."""
    return (
        f"{found.username} for {found.stands_for_name}" if found.delegation_id else found.username
    )


def _said(found: Decision, said: str) -> str:
    return f"broke the glass for incident {found.incident}:" if found.incident else said


def is_settled(row: RequestRow) -> bool:
    """Whether nothing on the page can change any more by itself."""
    if row.state == ApprovalState.APPROVED:
        return StepState(row.step.state) in STEP_FINISHED | {StepState.STUCK}
    return not row.is_open


# Only a forward run is its arguments. An undo is its own code, which is given them.
_ARGS_TITLES = {
    Direction.FORWARD: (
        "Exactly this will run",
        "Exactly this was approved",
        "This was proposed",
    ),
    Direction.COMPENSATE: (
        "The undo that will run",
        "The undo that was approved",
        "The undo that was asked about",
    ),
    Direction.CORRECT: (
        "The correction that will be sent",
        "The correction that was approved",
        "The correction that was asked about",
    ),
}


def args_title(row: RequestRow) -> str:
    """What is shown: what will run, what was let through, or what was asked for."""
    runs, was_approved, was_asked = _ARGS_TITLES[Direction(row.approval.direction)]
    if row.state == ApprovalState.APPROVED and row.approval.used_at:
        return was_approved
    return runs if row.is_open or row.state == ApprovalState.APPROVED else was_asked


def may_be_held(row: RequestRow) -> bool:
    """Whether what was let through has not started yet, so that a freeze would hold it."""
    return row.state == ApprovalState.APPROVED and row.approval.used_at is None


def banner(row: RequestRow, held: str = "") -> Banner | None:
    """What became of the request; None while it waits for people. `held`: by which freeze."""
    if row.is_open:
        return None
    state = StepState(row.step.state)
    if row.state == ApprovalState.APPROVED:
        names = " and ".join(_name(answer) for answer in row.yes)
        tone = STEP_TONE[state] if row.approval.used_at else "good"
        then = f"Now {state.replace('_', ' ')}: {held or STEP_MEANING[state]}"
        return Banner(tone, f"Approved by {names}.", then, row.over_since)
    what, tone, after = _ENDED[row.state]
    if row.state == ApprovalState.REJECTED and row.approval.direction != Direction.FORWARD:
        after = "The effect stays in the world, listed as residue of the saga."
    return Banner(
        tone, what, f"{state_sentence(row.approval, row.person)} {after}".strip(), row.over_since
    )


# What it was, its tone, and what to add to the sentence that every surface says.
_ENDED = {
    ApprovalState.REJECTED: ("Rejected.", "bad", "It did not run."),
    ApprovalState.EXPIRED: ("Expired.", "quiet", "Silence is never a yes."),
    ApprovalState.CHANGE_REQUESTED: (
        "Sent back for a change.",
        "wait",
        "The agent's next version will come as a new request.",
    ),
    ApprovalState.SUPERSEDED: ("Superseded.", "quiet", ""),
    ApprovalState.CANCELLED: ("Cancelled.", "quiet", ""),
}


@dataclass(frozen=True, slots=True)
class StepOnNo:
    """One step of the saga, with what a no would mean for it."""

    step: Any
    title: str
    on_no: str


_UNDONE = "would be undone"
_CORRECTED = "a correction would follow"
_CORRECTED_PERHAPS = "a correction would follow, if its tool has one"
_STAYS = "stays: cannot be undone"


def _undo_of(line: StepLine) -> str:
    if line.step.runs_tier == Tier.COMPENSATABLE:
        return _UNDONE
    if line.step.runs_tier == Tier.PIVOT or line.corrects is False:
        return _STAYS
    return _CORRECTED if line.corrects else _CORRECTED_PERHAPS


def steps_on_no(row: RequestRow, lines: Sequence[StepLine]) -> list[StepOnNo]:
    """What a no does to each step."""
    goes_back = _goes_back(row)
    return [StepOnNo(one.step, one.title, _on_no(row, one, goes_back)) for one in lines]


def _goes_back(row: RequestRow) -> bool:
    """After the commitment point a saga only goes forward (design rule 5.11)."""
    past = row.approval.saga.pivot_position is not None
    return row.approval.direction == Direction.FORWARD and not past


def _on_no(row: RequestRow, line: StepLine, goes_back: bool) -> str:
    step = line.step
    if not row.is_open or row.approval.saga.state in SAGA_ENDED:
        return ""
    if step.pk == row.step.pk:
        return "will not run" if row.approval.direction == Direction.FORWARD else "stays as it is"
    if not goes_back:
        return ""
    if step.state == StepState.COMMITTED:
        return "" if step.residue else _undo_of(line)
    return "" if step.state in STEP_FINISHED | STEP_IN_DOUBT else "will not run"


_SUMMED = {
    _UNDONE: "would be undone, the last one first",
    _CORRECTED: "would be answered by a correction",
    _CORRECTED_PERHAPS: "would be answered by a correction, if its tool has one",
    _STAYS: "would stay in the world",
}


def cost_of_no(row: RequestRow, steps: Sequence[StepOnNo]) -> str:
    """One sentence on what a no would set off."""
    if row.approval.direction != Direction.FORWARD:
        return "The effect stays in the world and is listed as residue; the saga goes on back."
    counts = Counter(step.on_no for step in steps)
    parts = [
        f"{counts[on_no]} {'effect' if counts[on_no] == 1 else 'effects'} {what}"
        for on_no, what in _SUMMED.items()
        if counts[on_no]
    ]
    if not parts:
        return "Nothing that already happened is touched; this step does not run."
    back = "the saga goes back: " + ", ".join(parts) + "."
    doubted = (found.step for found in steps if may_have_happened(found.step))
    if any(step.runs_tier == Tier.PIVOT for step in doubted):
        return (
            "This step does not run. Whether the commitment point happened is not known yet; if it "
            f"did not, {back}"
        )
    return f"This step does not run, and {back}"
