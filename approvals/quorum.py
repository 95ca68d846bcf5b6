"""Whether the people who said yes are enough. Pure.

Every need is met by different people: one person in two groups counts once (design section 6).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Need:
    """`count` different people of `group`."""

    group: str
    count: int = 1

    def __post_init__(self) -> None:
        if not self.group or self.count < 1:
            raise ValueError("a need names a group and at least one person of it")


@dataclass(frozen=True, slots=True)
class Progress:
    """How far one need is: `have` of `need.count` people."""

    need: Need
    have: int

    @property
    def missing(self) -> int:
        return self.need.count - self.have


def progress(needs: Sequence[Need], yes: Mapping[str, Iterable[str]]) -> list[Progress]:
    """Seat each person who said yes in one need at most, as many as can be.

    `yes` is the groups of each of them, by name. The answer is in the order of `needs`.
    No needs at all are met by nobody: see `is_met`.
    """
    seats = [index for index, need in enumerate(needs) for _ in range(need.count)]
    taken: dict[int, str] = {}
    member_of = {person: frozenset(groups) for person, groups in yes.items()}
    for person in sorted(member_of):
        _seat(person, needs, seats, member_of, taken, set())
    have = [0] * len(needs)
    for seat in taken:
        have[seats[seat]] += 1
    return [Progress(need, have[index]) for index, need in enumerate(needs)]


def _seat(
    person: str,
    needs: Sequence[Need],
    seats: Sequence[int],
    member_of: Mapping[str, frozenset[str]],
    taken: dict[int, str],
    tried: set[int],
) -> bool:
    """Augmenting path of a bipartite matching: move others aside where they have another seat."""
    for seat, need in enumerate(seats):
        if seat in tried or needs[need].group not in member_of[person]:
            continue
        tried.add(seat)
        if seat not in taken or _seat(taken[seat], needs, seats, member_of, taken, tried):
            taken[seat] = person
            return True
    return False


def is_met(needs: Sequence[Need], yes: Mapping[str, Iterable[str]]) -> bool:
    """Whether every need is met by different people. An empty list of needs never is."""
    return bool(needs) and all(not found.missing for found in progress(needs, yes))
