"""Needs are met by different people, and by nobody when there are none."""

from __future__ import annotations

from itertools import combinations, permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from approvals.quorum import Need, is_met, progress

ONE_EACH = [Need("approvers"), Need("finance")]


def test_one_person_in_both_groups_is_not_two_people() -> None:
    assert not is_met(ONE_EACH, {"ana": {"approvers", "finance"}})
    assert is_met(ONE_EACH, {"ana": {"approvers", "finance"}, "ben": {"approvers"}})


def test_who_is_in_several_groups_sits_where_they_are_missing() -> None:
    yes = {"ana": {"approvers", "finance"}, "ben": {"finance"}}
    assert [found.missing for found in progress(ONE_EACH, yes)] == [0, 0]


def test_no_needs_are_met_by_nobody() -> None:
    assert not is_met([], {"ana": {"approvers"}})


def test_an_outsider_adds_nothing() -> None:
    assert [found.have for found in progress(ONE_EACH, {"eve": {"viewers"}})] == [0, 0]


@pytest.mark.parametrize("bad", [{"group": ""}, {"group": "approvers", "count": 0}])
def test_a_need_of_nobody_cannot_be_written(bad: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="at least one person"):
        Need(**bad)  # type: ignore[arg-type]


@given(
    st.lists(st.tuples(st.sampled_from("abc"), st.integers(1, 2)), min_size=1, max_size=3),
    st.lists(st.sets(st.sampled_from("abc")), max_size=4),
)
def test_it_seats_as_many_people_as_can_be_seated(
    needs: list[tuple[str, int]], groups: list[set[str]]
) -> None:
    people = {f"p{index}": mine for index, mine in enumerate(groups)}
    wanted = [Need(group, count) for group, count in needs]
    seats = [need.group for need in wanted for _ in range(need.count)]

    def can_seat(count: int) -> bool:
        return any(
            all(seat in people[name] for seat, name in zip(chosen, order, strict=True))
            for chosen in combinations(seats, count)
            for order in permutations(people, count)
        )

    seated = sum(found.have for found in progress(wanted, people))
    assert can_seat(seated)
    assert not can_seat(seated + 1)
