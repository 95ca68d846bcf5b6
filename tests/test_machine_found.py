"""What the state machine and the soak have found, each once and by hand."""

from __future__ import annotations

import pytest
from django.db import connection

from ledger import outbox
from ledger.services import shifts
from ledger.shift import ShiftLoop
from tests.shop import Shop, assert_verifies, customer, kinds, states


@pytest.fixture
def deaf(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever opens a new connection now finds nobody, as while Postgres starts again."""
    monkeypatch.setitem(connection.settings_dict, "HOST", "127.0.0.1")
    monkeypatch.setitem(connection.settings_dict, "PORT", "1")


@pytest.mark.usefixtures("shop", "deaf")
def test_a_relay_outlives_a_database_that_is_away() -> None:
    """It died of psycopg's own error, and was started again only after 10 s of backoff."""
    turns = iter([False, False, True])
    outbox.run_forever(lambda: next(turns))
    assert next(turns, "ended") == "ended"


@pytest.mark.usefixtures("deaf")
def test_a_shift_that_cannot_listen_still_writes_down_what_its_calls_came_to(shop: Shop) -> None:
    """It died between call and outcome, so that every step it had in hand became unknown."""
    saga = shop.open(customer("one"))
    assert ShiftLoop(shifts.ring_row()).run() == 1
    assert states(saga) == {"one": "committed"}
    assert [kind for kind, _ in kinds(saga, "attempt.expired", "step.unknown")] == []
    assert_verifies()
