"""Bars on one axis: in order, inside the drawing, and readable across a silent night."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ledger.templatetags.console import measured
from ledger.views.axis import WIDTH, Axis, Stretch, paced

START = datetime(2026, 3, 1, 2, tzinfo=UTC)


def stretch(begin: float, length: float) -> Stretch:
    return Stretch(START + timedelta(seconds=begin), START + timedelta(seconds=begin + length))


def test_two_quick_attempts_a_night_apart_are_both_readable():
    first, second = stretch(0, 2), stretch(30_000, 2)
    axis = Axis([first, second])
    bars = [axis.bar(s, "good", "") for s in (first, second)]
    assert all(bar.width > WIDTH / 3 for bar in bars)


def test_an_attempt_of_no_length_is_still_a_tick():
    axis = Axis([stretch(0, 10), stretch(20, 0)])
    assert axis.bar(stretch(20, 0), "bad", "").width >= 6


@given(
    st.lists(
        st.tuples(st.floats(0, 1e6), st.floats(0, 1e5)).map(lambda pair: stretch(*pair)),
        min_size=1,
        max_size=20,
    )
)
def test_bars_stay_inside_the_drawing_and_in_order(stretches):
    axis = Axis(stretches)
    bars = [axis.bar(s, "good", "") for s in sorted(stretches, key=lambda s: s.start)]
    assert all(bar.x >= 0 and bar.x + bar.width <= WIDTH for bar in bars)
    places = [axis.at(s.start) for s in sorted(stretches, key=lambda s: s.start)]
    assert places == sorted(places)


def test_only_a_long_silence_gets_a_line_of_its_own():
    moments = [7_300, 100, 99]
    entries = [SimpleNamespace(at=START + timedelta(seconds=at)) for at in moments]
    assert [pace.pause for pace in paced(entries)] == [timedelta(hours=2), None, None]


@pytest.mark.parametrize(
    ("seconds", "said"), [(0.004, "4 ms"), (1.34, "1.3 s"), (75, "1 min"), (7_800, "2 h 10 min")]
)
def test_what_was_measured_is_said_as_exactly_as_it_matters(seconds, said):
    assert measured(timedelta(seconds=seconds)) == said
