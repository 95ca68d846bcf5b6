"""In doubt: answers cut off after the effect, leases that ran out, answers that came late."""

from __future__ import annotations

import json
import time
from uuid import UUID

from django.db import connection

from ledger import outbox
from ledger.models import Attempt, Entry, Step
from ledger.outcomes import Done
from ledger.services.claiming import claim
from ledger.services.closing import abort
from ledger.services.operating import resolve
from ledger.services.proposals import Proposal
from ledger.services.recording import Finished, record
from ledger.services.shifts import ring_row
from tests.shop import Shop, assert_verifies, kinds, states, work, work_saga


def settle_step(charge: str) -> Proposal:
    return Proposal("refund", "payments.settle", {"charge": charge, "amount": 100})


def step_of(saga: UUID) -> Step:
    return Step.objects.get(saga_id=saga)


def test_an_answer_cut_off_after_the_effect_is_found_by_the_probe(shop: Shop) -> None:
    charge = shop.charge()
    shop.wire.cut_next("POST", "/v1/refunds")
    saga = shop.open(settle_step(charge))
    work(lambda: states(saga)["refund"] == "committed")
    assert len(shop.refunds(charge)) == 1
    assert ("step.unknown", "refund") in kinds(saga)
    committed = Entry.objects.get(saga_id=saga, kind="step.committed")
    assert json.loads(committed.payload)["how"] == "probe"
    assert step_of(saga).attempts == 1
    assert_verifies()


def test_without_a_probe_a_person_answers_and_nothing_is_sent_again(shop: Shop) -> None:
    shop.wire.cut_next("POST", "/v1/customers")
    saga = shop.open(Proposal("one", "crm.blind", {"email": "blind@example.com"}))
    work_saga(saga, "stuck")
    step = step_of(saga)
    assert (step.state, step.attempts) == ("unknown", 1)
    assert "say whether it did" in step.held_why
    mine = shop.customers(step.idempotency_key)
    assert len(mine) == 1
    result = {"id": mine[0]["id"]}
    resolve(step.pk, "happened", result=result, reason="seen it", actor="person:ona")
    assert states(saga) == {"one": "committed"}
    abort(saga, "undo by the answered result", bearer=shop.bearer)
    work_saga(saga, "compensated")
    assert not shop.is_there(mine[0]["id"])
    assert_verifies()


def test_a_lease_that_runs_out_leads_to_looking_and_not_to_running_again(shop: Shop) -> None:
    """Cases C17, P10: intent without outcome is unknown; the probe finds nothing, twice."""
    charge = shop.charge()
    saga = shop.open(settle_step(charge))
    (taken,) = claim(ring_row(), 1)
    expire(taken.attempt)
    outbox.sweep()
    assert states(saga) == {"refund": "unknown"}
    work(lambda: states(saga)["refund"] == "committed")
    assert len(shop.refunds(charge)) == 1
    looks = [json.loads(e.payload)["saw"] for e in entries(saga, "step.looked")]
    assert looks[-2:] == ["not applied", "not applied"]
    assert_verifies()


def test_a_worker_that_wakes_after_its_lease_changes_nothing_but_leaves_evidence(
    shop: Shop,
) -> None:
    """Case P16: the zombie's effect is real, so its late answer must not be thrown away."""
    charge = shop.charge()
    saga = shop.open(settle_step(charge))
    shift = ring_row()
    (zombie,) = claim(shift, 1)
    expire(zombie.attempt)
    outbox.sweep()
    outcome = zombie.tool.run(zombie.call)
    assert isinstance(outcome, Done)
    for _ in range(2):
        record(shift, [Finished(zombie, outcome)])
    assert states(saga) == {"refund": "unknown"}
    assert kinds(saga, "attempt.late") == [("attempt.late", "refund")]
    work(lambda: states(saga)["refund"] == "committed")
    assert len(shop.refunds(charge)) == 1
    assert step_of(saga).attempts == 1
    assert_verifies()


def test_late_evidence_resolves_what_cannot_be_looked_up(shop: Shop) -> None:
    saga = shop.open(Proposal("one", "crm.blind", {"email": "late@example.com"}))
    shift = ring_row()
    (zombie,) = claim(shift, 1)
    expire(zombie.attempt)
    outbox.sweep()
    work_saga(saga, "stuck")
    record(shift, [Finished(zombie, zombie.tool.run(zombie.call))])
    work_saga(saga, "running")
    assert states(saga) == {"one": "committed"}
    assert_verifies()


def test_the_same_outcome_written_twice_is_written_once(shop: Shop) -> None:
    """Case P13: a COMMIT whose answer was lost is read back, not taken for a late answer."""
    saga = shop.open(settle_step(shop.charge()))
    shift = ring_row()
    (taken,) = claim(shift, 1)
    finished = Finished(taken, taken.tool.run(taken.call))
    record(shift, [finished])
    before = Entry.objects.filter(saga_id=saga).count()
    record(shift, [finished])
    assert Entry.objects.filter(saga_id=saga).count() == before


def test_an_abort_waits_for_the_step_in_flight_and_then_undoes_it(shop: Shop) -> None:
    """Case P18: no blind undo of an effect that may yet come."""
    saga = shop.open(Proposal("one", "crm.customer", {"email": "flight@example.com"}))
    shift = ring_row()
    (taken,) = claim(shift, 1)
    abort(saga, "stop", bearer=shop.bearer)
    assert states(saga) == {"one": "executing"}
    record(shift, [Finished(taken, taken.tool.run(taken.call))])
    work_saga(saga, "compensated")
    assert states(saga) == {"one": "compensated"}
    assert_verifies()


def test_an_aborted_step_that_was_only_queued_never_runs(shop: Shop) -> None:
    """Case C66: undoing what never started is a recorded no-op."""
    saga = shop.open(Proposal("one", "crm.customer", {"email": "idle@example.com"}))
    abort(saga, "stop", bearer=shop.bearer)
    assert states(saga) == {"one": "cancelled"}
    assert claim(ring_row(), 10) == []
    assert kinds(saga)[-1] == ("saga.compensated", "")


def test_the_target_being_away_is_retried_within_the_budget_and_then_given_up(
    shop: Shop,
) -> None:
    shop.wire.stop()
    saga = shop.open(Proposal("one", "crm.customer", {"email": "away@example.com"}), retry_budget=2)
    work_saga(saga, "compensated")
    assert states(saga) == {"one": "failed"}
    assert step_of(saga).attempts == 3
    shop.wire.start()
    assert_verifies()


def test_stored_args_that_were_changed_behind_the_ledger_never_run(shop: Shop) -> None:
    saga = shop.open(Proposal("one", "crm.customer", {"email": "mallory@example.com"}))
    with connection.cursor() as cursor:
        cursor.execute("ALTER TABLE ledger_step DISABLE TRIGGER ledger_step_frozen")
        cursor.execute("UPDATE ledger_step SET args_text = replace(args_text, 'mallory', 'trudy')")
        cursor.execute("ALTER TABLE ledger_step ENABLE TRIGGER ledger_step_frozen")
    work_saga(saga, "stuck")
    step = step_of(saga)
    assert (step.state, step.attempts) == ("stuck", 0)
    assert "digest" in step.held_why


def expire(attempt: UUID | None) -> None:
    Attempt.objects.filter(pk=attempt).update(
        lease_until=Attempt.objects.get(pk=attempt).started_at
    )
    time.sleep(0.01)


def entries(saga: UUID, kind: str) -> list[Entry]:
    return list(Entry.objects.filter(saga_id=saga, kind=kind).order_by("seq"))
