"""Where things lie in time: bars of attempts on one axis, with long silences folded. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Generic, TypeVar

T = TypeVar("T")

# The drawing is this many units wide; SVG scales it to the page.
WIDTH = 1_000
# A silence longer than this share of what is left of the axis is folded to a sliver.
_FOLD_SHARE = 0.2
_SLIVER = 24
# So short an attempt is still a visible tick.
_NARROWEST = 6
# Between two entries, a silence longer than this is worth a line of its own.
PAUSE = timedelta(minutes=2)


@dataclass(frozen=True, slots=True)
class Stretch:
    start: datetime
    end: datetime


@dataclass(frozen=True, slots=True)
class Bar:
    x: int
    width: int
    tone: str
    title: str


def _merged(stretches: Iterable[Stretch]) -> list[Stretch]:
    merged: list[Stretch] = []
    for stretch in sorted(stretches, key=lambda s: s.start):
        if merged and stretch.start <= merged[-1].end:
            merged[-1] = Stretch(merged[-1].start, max(merged[-1].end, stretch.end))
        else:
            merged.append(stretch)
    return merged


class Axis:
    """Maps a moment to 0..WIDTH. Silences between the given stretches that would swallow the
    axis become slivers, so that two quick attempts a night apart are both readable."""

    def __init__(self, stretches: Iterable[Stretch]) -> None:
        self._busy = _merged(stretches)
        active = sum(((s.end - s.start).total_seconds() for s in self._busy), 0.0)
        silences = [
            (later.start - earlier.end).total_seconds()
            for earlier, later in zip(self._busy, self._busy[1:], strict=False)
        ]
        limit = max(active * _FOLD_SHARE, 0.001)
        self._folded = [silence > limit for silence in silences]
        kept = sum(s for s, folded in zip(silences, self._folded, strict=True) if not folded)
        room = max(WIDTH - _SLIVER * sum(self._folded), WIDTH // 4)
        self._scale = room / max(active + kept, 0.001)

    def at(self, moment: datetime) -> float:
        x = 0.0
        for index, stretch in enumerate(self._busy):
            if moment <= stretch.end:
                return x + max(0.0, (moment - stretch.start).total_seconds()) * self._scale
            x += (stretch.end - stretch.start).total_seconds() * self._scale
            if index < len(self._folded):
                silence = (self._busy[index + 1].start - stretch.end).total_seconds()
                if moment < self._busy[index + 1].start:
                    inside = (moment - stretch.end).total_seconds() / silence
                    return x + inside * (_SLIVER if self._folded[index] else silence * self._scale)
                x += _SLIVER if self._folded[index] else silence * self._scale
        return min(x, WIDTH)

    def bar(self, stretch: Stretch, tone: str, title: str) -> Bar:
        start, end = self.at(stretch.start), self.at(stretch.end)
        width = max(_NARROWEST, round(end - start))
        return Bar(min(round(start), WIDTH - width), width, tone, title)


@dataclass(frozen=True, slots=True)
class Paced(Generic[T]):
    """An item and the silence between it and the next older one, when it is long."""

    item: T
    pause: timedelta | None


def paced(newest_first: Sequence[T], at: str = "at") -> list[Paced[T]]:
    """Mark the long silences in a list of moments, newest first."""
    paces: list[Paced[T]] = []
    for index, item in enumerate(newest_first):
        older = newest_first[index + 1] if index + 1 < len(newest_first) else None
        gap = getattr(item, at) - getattr(older, at) if older is not None else timedelta()
        paces.append(Paced(item, gap if gap >= PAUSE else None))
    return paces
