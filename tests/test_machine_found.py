"""What the state machine and the soak have found, each once and by hand."""

from __future__ import annotations

import time
from datetime import timedelta
from uuid import UUID

import pytest
from django.db import connection
from django.utils import timezone

from ledger import outbox, storage
from ledger.bearer import Bearer
from ledger.models import IdempotencyRecord, Saga, Step
from ledger.services import freezing, operating, shifts
from ledger.services.claiming import claim
from ledger.services.closing import abort
from ledger.services.opening import open_saga
from ledger.services.proposals import Opening, Proposal
from ledger.services.recording import Finished, record
from ledger.shift import ShiftLoop
from tests.approvalcast import agent
from tests.machine import Console, run_out
from tests.machinecast import bookshop, machine
from tests.shop import Shop, assert_verifies, customer, kinds, states, work_saga

__all__ = ["bookshop", "machine"]


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
    end = timezone.now() + timedelta(milliseconds=300)
    freeze = freezing.freeze("saga", str(saga), reason="a", expires_at=end, actor="person:ona")
    time.sleep(0.35)
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


def doubted(machine: type[Console], bearer: Bearer) -> UUID:
    """A saga whose one step was carried out and not answered, and is to be sent again."""
    machine.book.clear()
    steps = (Proposal("one", "book.dedupes", {"what": "it"}),)
    saga = open_saga(Opening("task", "Doubt", steps=steps, retry_budget=1), bearer=bearer).saga
    turn(machine, "after")
    assert states(saga) == {"one": "queued"}
    assert len(machine.book.lines) == 1
    return saga


def turn(machine: type[Console], *faults: str) -> None:
    """All that is owed is due, and is done once."""
    machine.book.coming = list(faults)
    storage.execute("UPDATE ledger_outboxmessage SET due_at = clock_timestamp()")
    shift = shifts.ring_row()
    called = [Finished(one, one.tool.run(one.call)) for one in claim(shift, 5)]
    record(shift, called)


def test_a_refusal_after_a_doubt_under_the_same_key_settles_nothing(machine: type[Console]) -> None:
    """The first try was carried out, the second was told 503, no third was left: `failed`."""
    saga = doubted(machine, agent())
    turn(machine, "busy")
    assert states(saga) == {"one": "unknown"}
    assert Saga.objects.get(pk=saga).state == "stuck"
    (step,) = Step.objects.filter(saga_id=saga)
    (key,) = IdempotencyRecord.objects.filter(step=step)
    assert key.state == "pending"
    operating.resolve(step.pk, "happened", result={}, reason="seen", actor="person:ona")
    assert states(saga) == {"one": "committed"}
    assert_verifies()


def test_an_abort_undoes_what_was_to_be_sent_again(machine: type[Console]) -> None:
    """It was cancelled as never started, and its effect stayed in the world unseen."""
    bearer = agent()
    saga = doubted(machine, bearer)
    abort(saga, "stop", bearer=bearer)
    assert states(saga) == {"one": "queued"}
    turn(machine)
    turn(machine)
    assert states(saga) == {"one": "compensated"}
    assert [line["noun"] for line in machine.book.lines] == ["effects", "undos"]
    assert_verifies()


def test_a_late_answer_that_ends_a_doubt_spends_the_key_too(machine: type[Console]) -> None:
    """The step was committed, and its idempotency record said `pending` for ever."""
    machine.book.clear()
    steps = (Proposal("one", "book.dedupes", {"what": "it"}),)
    saga = open_saga(Opening("task", "Late", steps=steps), bearer=agent()).saga
    shift = shifts.ring_row()
    (lost,) = claim(shift, 1)
    said = Finished(lost, lost.tool.run(lost.call))
    run_out()
    outbox.sweep()
    assert states(saga) == {"one": "queued"}
    record(shift, [said])
    assert states(saga) == {"one": "committed"}
    (key,) = IdempotencyRecord.objects.filter(step__saga_id=saga)
    assert key.state == "executed"
    assert_verifies()
