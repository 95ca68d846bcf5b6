"""Two versions of arguments side by side, line by line. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from ledger.templatetags.values import ValueRow, value_rows


@dataclass(frozen=True, slots=True)
class Line:
    """One part of the arguments before and after; None where it is not there."""

    path: str
    indent: int
    before: ValueRow | None
    after: ValueRow | None

    @property
    def is_changed(self) -> bool:
        if self.before is None or self.after is None:
            return True
        return (self.before.kind, self.before.text) != (self.after.kind, self.after.text)

    @property
    def is_other_kind(self) -> bool:
        """Whether the kind must be said, because "1" and 1 look the same."""
        if self.before is None or self.after is None:
            return False
        return self.before.kind != self.after.kind


def between(before: Any, after: Any) -> list[Line]:
    """Every part that either has, in the order of the later one, what is gone at its place."""
    old = {row.path: row for row in value_rows(before)}
    new = {row.path: row for row in value_rows(after)}
    return [
        Line(path, (new.get(path) or old[path]).indent, old.get(path), new.get(path))
        for path in _order(list(old), list(new))
    ]


def changed(before: Any, after: Any) -> list[Line]:
    """The parts that differ."""
    return [line for line in between(before, after) if line.is_changed]


def _order(old: list[str], new: list[str]) -> Iterator[str]:
    """The new order, with what is gone before what followed it."""
    known = set(new)
    left = iter(old)
    gone: list[str] = []
    told = set()
    for path in new:
        for before in left:
            if before in known:
                break
            gone.append(before)
        yield from (one for one in gone if one not in told)
        told.update(gone)
        gone = []
        yield path
    yield from (one for one in [*gone, *left] if one not in known and one not in told)
