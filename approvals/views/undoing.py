"""What really runs when people let an undo or a correction run: the tool's own leg for it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from approvals.queries_pages import RequestRow
from ledger.states import Direction
from ledger.tools.contract import Tool
from ledger.tools.declared import DeclaredLeg, leg_of
from ledger.tools.installed import registry

Definition = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Undo:
    """`what` it does to the effect, by which `leg`, with which recorded `result_text`.

    `is_here` is whether the code that was asked about is what is installed here now.
    """

    what: str
    leg: DeclaredLeg | None
    result_text: str | None
    is_here: bool

    @property
    def is_python(self) -> bool:
        return self.leg is not None and not self.leg.body_kind


_WHAT = {Direction.COMPENSATE: "Undoes the effect of", Direction.CORRECT: "Corrects the effect of"}


def undo(row: RequestRow, definition: Definition | None) -> Undo | None:
    """What people are told in place of 'exactly this will run'; None of a forward run."""
    direction = Direction(row.approval.direction)
    if direction == Direction.FORWARD:
        return None
    tool = _installed(row)
    return Undo(
        _WHAT[direction],
        leg_of(definition or {}, direction, tool),
        row.step.result_text,
        tool is not None,
    )


def target(row: RequestRow, definition: Definition | None) -> str:
    """Where the call would go, or ''."""
    leg = leg_of(definition or {}, Direction(row.approval.direction))
    return leg.call if leg else ""


def _installed(row: RequestRow) -> Tool | None:
    """The tool that is registered here, if it is the very one that was asked about."""
    key = row.approval.tool
    tool = registry().get(key) if key in registry() else None
    return tool if tool is not None and tool.digest == row.approval.tool_digest else None
