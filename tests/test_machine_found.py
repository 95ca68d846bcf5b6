"""What the state machine and the soak have found, each once and by hand."""

from __future__ import annotations

import time
from datetime import timedelta

import pytest
from django.db import connection
from django.utils import timezone

from ledger import outbox
from ledger.models import Saga, Step
from ledger.services import freezing, operating, shifts
from ledger.services.proposals import Proposal
from ledger.shift import ShiftLoop
from tests.shop import Shop, assert_verifies, customer, kinds, states, work_saga


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


def test_a_saga_frozen_twice_is_paused_until_both_freezes_end(shop: Shop) -> None:
    """One lift made it `running`, and nothing ran."""
    saga = shop.open(customer("one"))
    first, second = (
        freezing.freeze("saga", str(saga), reason=why, actor="person:ona") for why in ("a", "b")
    )
    freezing.lift(first.pk, actor="person:ona")
    assert Saga.objects.get(pk=saga).state == "paused"
    freezing.lift(second.pk, actor="person:ona")
    assert Saga.objects.get(pk=saga).state == "running"
    assert_verifies()


def test_a_freeze_that_has_run_out_leaves_no_saga_paused(shop: Shop) -> None:
    """Its steps ran on, and the saga said for ever that somebody held it."""
    saga = shop.open(customer("one"))
    end = timezone.now() + timedelta(milliseconds=20)
    freeze = freezing.freeze("saga", str(saga), reason="a", expires_at=end, actor="person:ona")
    time.sleep(0.03)
    outbox.sweep()
    assert Saga.objects.get(pk=saga).state == "running"
    freeze.refresh_from_db()
    assert freeze.lifted_by == "clock"
    assert kinds(saga)[-2:] == [("saga.thawed", ""), ("saga.resumed", "")]


def test_a_saga_that_is_unstuck_while_frozen_is_paused(shop: Shop) -> None:
    saga = shop.open(Proposal("one", "crm.blind", {"email": "frozen@example.com"}))
    shop.wire.cut_next("POST", "/v1/customers")
    work_saga(saga, "stuck")
    freeze = freezing.freeze("saga", str(saga), reason="a", actor="person:ona")
    (step,) = Step.objects.filter(saga_id=saga)
    operating.resolve(step.pk, "happened", result={}, reason="seen", actor="person:ona")
    assert Saga.objects.get(pk=saga).state == "paused"
    freezing.lift(freeze.pk, actor="person:ona")
    assert Saga.objects.get(pk=saga).state == "running"
    assert_verifies()
