"""What the database refuses about drills, whoever connects."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest
from django.db import DatabaseError, connection, transaction

from ledger.legs import ENDS, DrillState, Leg
from ledger.models import Drill, DrillLeg
from ledger.models.fields import uuid7
from ledger.walls import REFUSED


@pytest.fixture
def drill(db: None) -> Drill:
    return Drill.objects.create(
        tool="t",
        version="1",
        digest="0" * 64,
        undo="compensate",
        args_text="{}",
        sandbox="http://127.0.0.1:1",
        reason="a test",
        asked_by="person:oskar",
    )


def leg(drill: Drill, leg: str, outcome: str = "done") -> DrillLeg:
    return DrillLeg.objects.create(drill=drill, leg=leg, ok=True, outcome=outcome, shift_id=uuid7())


def refused(act: Any) -> str:
    with pytest.raises(DatabaseError) as caught, transaction.atomic():
        act()
    cause = caught.value.__cause__
    assert isinstance(cause, psycopg.Error)
    return cause.sqlstate or ""


@pytest.mark.parametrize("table", ["ledger_drill", "ledger_drillleg"])
@pytest.mark.parametrize("change", ["UPDATE {} SET id = id", "DELETE FROM {}"])
def test_drills_and_their_legs_are_append_only(drill: Drill, table: str, change: str) -> None:
    leg(drill, Leg.START)
    with connection.cursor() as cursor:
        assert refused(lambda: cursor.execute(change.format(table))) == REFUSED


def test_a_drill_begins_once_ends_once_and_tells_nothing_before_or_after(drill: Drill) -> None:
    assert refused(lambda: leg(drill, Leg.EXECUTE)) == REFUSED
    assert refused(lambda: leg(drill, Leg.END, "worked")) == REFUSED
    leg(drill, Leg.START)
    assert refused(lambda: leg(drill, Leg.START)) == REFUSED
    leg(drill, Leg.EXECUTE)
    assert refused(lambda: leg(drill, Leg.EXECUTE)) == "23505"
    assert refused(lambda: leg(drill, "nonsense")) == "23514"
    leg(drill, Leg.END, "worked")
    assert refused(lambda: leg(drill, Leg.END, "failed")) == REFUSED
    assert refused(lambda: leg(drill, Leg.UNDO)) == REFUSED


@pytest.mark.parametrize("state", list(DrillState))
def test_a_drill_ends_only_as_the_table_says(drill: Drill, state: DrillState) -> None:
    leg(drill, Leg.START)
    if state in ENDS:
        assert leg(drill, Leg.END, state).pk
    else:
        assert refused(lambda: leg(drill, Leg.END, state)) == REFUSED


def test_the_time_of_a_leg_is_the_databases_own(drill: Drill) -> None:
    made = DrillLeg.objects.create(
        drill=drill, leg="start", ok=True, outcome="taken", shift_id=uuid7(), at="2020-01-01T00:00Z"
    )
    made.refresh_from_db()
    assert made.at.year > 2020


def test_a_drill_undoes_and_has_a_reason(drill: Drill) -> None:
    for wrong in ({"undo": "forward"}, {"reason": ""}):
        values = {**Drill.objects.values().get(), **wrong, "id": uuid7()}
        assert refused(lambda values=values: Drill.objects.create(**values)) == "23514"
