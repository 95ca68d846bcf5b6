"""How much of something may leave in a while. Pure: what a run uses, and whose share it takes."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from fnmatch import fnmatchcase
from typing import Any, Literal

from approvals.expressions import CannotEvaluate, Document, compiled

# As many as the column of a reservation holds, and far more than anybody means.
MOST = 1e18
# The longest window that a limit may have.
LONGEST_S = 366 * 86400


@dataclass(frozen=True, slots=True)
class Limit:
    """At most `max` in any `per_s` seconds, for each agent, each tool, or everyone together.

    `sum` is an expression in CEL over the frozen arguments; '' counts runs. Forward runs only:
    a limit never holds an undo.
    """

    name: str
    by: Literal["agent", "tool", "everyone"]
    per_s: int
    max: float
    over: Literal["ask", "deny"]
    tool: str = "*"
    agent: str = "*"
    sum: str = ""

    def is_about(self, tool: str, agent: str) -> bool:
        return fnmatchcase(tool, self.tool) and fnmatchcase(agent, self.agent)

    def share_of(self, tool: str, agent: str) -> str:
        """Whose part of the limit a run takes: the agent's, the tool's, or ''."""
        return {"agent": agent, "tool": tool}.get(self.by, "")

    def amount(self, args: Any) -> Decimal:
        """What one run uses. Raises CannotEvaluate when that is not a number from 0 up."""
        if not self.sum:
            return Decimal(1)
        found = compiled(self.sum).value(Document({"args": args}))
        if isinstance(found, bool) or not isinstance(found, int | float):
            raise CannotEvaluate(f"{self.sum} is not a number")
        if not 0 <= found < MOST:  # NaN is neither
            # A negative one would give others room that nobody gave them.
            raise CannotEvaluate(f"{self.sum} is {found}, which cannot be counted")
        return Decimal(repr(found))
