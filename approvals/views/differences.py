"""Two versions of arguments side by side, line by line. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from django.utils.safestring import SafeString

from ledger.templatetags.values import ValueRow, value_rows


@dataclass(frozen=True, slots=True)
class Line:
    """One part of the arguments before and after; None where it is not there."""

    path: str
    indent: int
    before: SafeString | None
    after: SafeString | None

    @property
    def is_changed(self) -> bool:
        return self.before != self.after


def between(before: Any, after: Any) -> list[Line]:
    """Every part that either has, in the order of the later one, what is gone at its place."""
    old = {row.path: row for row in value_rows(before)}
    new = {row.path: row for row in value_rows(after)}
    return [
        Line(path, (new.get(path) or old[path]).indent, _said(old, path), _said(new, path))
        for path in _order(list(old), list(new))
    ]


def _said(rows: dict[str, ValueRow], path: str) -> SafeString | None:
    row = rows.get(path)
    return None if row is None else row.text + SafeString(f' <span class="kind">{row.kind}</span>')


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
