"""A few crash rows, on one console, and the page that tells of all of them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from tests import guardlist, guards
from tests.crash import page
from tests.crash.__main__ import stage_on
from tests.crash.every import IN_SUITE, ROWS
from tests.crash.lane import Lane
from tests.crash.rows import Row, Stage
from tests.furnished import furnished


@pytest.fixture(scope="module")
def cast(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    """One whole console for these rows."""
    folder = tmp_path_factory.mktemp("crash") / "lane"
    furnished(folder / "home")
    lane = Lane(folder)
    try:
        yield stage_on(lane)
        lane.quiet()
        assert "the ledger verifies" in lane.manage("verify_ledger")
    finally:
        lane.close()


def named() -> list[Row]:
    found = {row.name: row for row in ROWS}
    return [found[name] for name in IN_SUITE]


@pytest.mark.parametrize("row", named(), ids=lambda row: row.name)
def test_nothing_is_lost_and_nothing_doubled(cast: Stage, row: Row) -> None:
    cast.lane.quiet()
    try:
        row.play(replace(cast), row.kind)
    finally:
        cast.lane.disarm()
        cast.lane.target.released.set()


def test_every_point_of_the_table_has_a_row() -> None:
    assert {row.point for row in ROWS} == {f"P{n}" for n in range(29)}


def test_the_page_tells_of_no_row_that_is_not_played() -> None:
    """`make crash` writes all of them or none; its next run tells of rows that are new since."""
    told = [line.split(" | ")[:4] for line in page.part("crash").splitlines()[2:]]
    named = [" · ".join(cells).removeprefix("| ") for cells in told]
    assert set(named) <= {row.name for row in ROWS}


def test_the_page_tells_of_every_guard() -> None:
    assert page.part("guards") == guards.table()


@pytest.mark.parametrize("guard", guardlist.GUARDS, ids=lambda guard: guard.name)
def test_every_guard_is_still_where_the_list_says(guard: guardlist.Guard) -> None:
    source = (page.BASE_DIR / guard.path).read_text(encoding="utf-8")
    assert source.count(guard.text) == 1
