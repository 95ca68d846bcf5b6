"""What is wrong with a tool's definition. It stops the start, with every fault at once."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Fault:
    """One thing to change. `where` is a file and line, or a Python name."""

    where: str
    reason: str

    def __str__(self) -> str:
        return f"{self.where}: {self.reason}"


class InvalidTools(Exception):
    """The tools cannot be used as written; the text has one line for each fault."""

    def __init__(self, faults: list[Fault]) -> None:
        super().__init__("\n".join(str(fault) for fault in faults))
        self.faults = faults


class DefinitionError(ValueError):
    """One fault, raised where only the reason is known; `path` leads to it from the tool."""

    def __init__(self, reason: str, path: tuple[str | int, ...] = ()) -> None:
        super().__init__(reason)
        self.reason = reason
        self.path = path
