"""What Postgres itself promises here: frozen digests, and claims one at a time."""

from __future__ import annotations

import threading
from collections import Counter
from functools import partial
from uuid import UUID

import pytest
from django.db import DatabaseError, connection, transaction

from ledger import storage
from ledger.models import IdempotencyRecord, Step
from ledger.walls_sql import REFUSED
from tests.approvalcast import in_threads
from tests.shop import Shop, states, work


def refused_by_hand(sql: str, *values: object) -> str:
    """What the database says to somebody with psql and the application's own role."""
    with pytest.raises(DatabaseError) as refused, transaction.atomic():
        storage.execute(sql, values)
    assert storage.sqlstate(refused.value) == REFUSED, refused.value
    return str(refused.value)


def committed_settle(shop: Shop) -> tuple[UUID, Step, dict[str, object]]:
    """A saga, its committed step, and the args to ask for it again."""
    args = {"charge": shop.charge(), "amount": 700}
    saga = shop.open()
    shop.propose(saga, "refund", "payments.settle", args=args)
    work(lambda: states(saga)["refund"] == "committed")
    return saga, Step.objects.get(saga_id=saga), args


@pytest.mark.parametrize(
    "change",
    [
        "fingerprint = repeat('0', 64)",
        "args_text = '{}'",
        "idempotency_key = repeat('0', 64)",
        "tool = 'crm.customer'",
        "effect_key = ''",
        "step_id = 'another'",
        "result_text = NULL",
    ],
)
def test_what_a_step_was_asked_for_is_frozen_in_the_database(shop: Shop, change: str) -> None:
    """Case C81: nothing that completes a step can drop its digest, and a retry still fits."""
    saga, step, args = committed_settle(shop)
    refused_by_hand(f"UPDATE ledger_step SET {change} WHERE id = %s", step.pk)
    again = shop.propose(saga, "refund", "payments.settle", args=args)
    assert (again.kind, again.step) == ("replayed", step.pk)


@pytest.mark.parametrize(
    "change",
    ["fingerprint = repeat('0', 64)", "key = 'k'", "response = NULL", "state = 'pending'"],
)
def test_an_executed_record_is_frozen_in_the_database(shop: Shop, change: str) -> None:
    """Case C81: the record of a key keeps its digest and its answer."""
    _, step, _ = committed_settle(shop)
    record = IdempotencyRecord.objects.get(step=step)
    assert (record.fingerprint, record.state) == (step.fingerprint, "executed")
    refused_by_hand(f"UPDATE ledger_idempotencyrecord SET {change} WHERE key = %s", record.key)


def test_a_pending_record_keeps_its_digest_too(shop: Shop) -> None:
    """Case C81: from the insert on, and not only from the completion on."""
    shop.wire.cut_next("POST", "/v1/customers")
    shop.propose(shop.open(), "one", "crm.blind", args={"email": "x@example.com"})
    work(lambda: Step.objects.get().state == "unknown")
    assert IdempotencyRecord.objects.get().state == "pending"
    refused_by_hand("UPDATE ledger_idempotencyrecord SET fingerprint = repeat('0', 64)")


# -- C103 ---------------------------------------------------------------------------------


def test_transactions_are_read_committed(shop: Shop) -> None:
    """Case C103: under anything stricter, SKIP LOCKED and ON CONFLICT raise 40001."""
    with transaction.atomic():
        assert storage.the_row("SHOW transaction_isolation").transaction_isolation == (
            "read committed"
        )


def test_sagas_that_race_for_one_effect_get_one_acceptance_and_otherwise_its_answer(
    shop: Shop,
) -> None:
    """Cases C103, H5: the loser waits for the first inserter, inserts nothing, and finds it."""
    args = {"charge": shop.charge(), "amount": 500}
    sagas = [shop.open() for _ in range(16)]
    line = threading.Barrier(len(sagas))
    answers: list[tuple[str, bool, UUID]] = []

    def submit(saga: UUID) -> None:
        line.wait(30)
        answer = shop.propose(saga, "refund", "payments.settle", args=args)
        answers.append((answer.kind, answer.effect_of is None, answer.step))
        connection.close()

    threads = [threading.Thread(target=submit, args=[saga]) for saga in sagas]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert Counter(kind for kind, _, _ in answers) == {"accepted": 1, "in_flight": 15}
    assert all(is_own == (kind == "accepted") for kind, is_own, _ in answers)
    (first,) = {step for _, _, step in answers}
    assert Step.objects.get().pk == first
    work(lambda: Step.objects.get().state == "committed")
    assert len(shop.refunds(str(args["charge"]))) == 1


def test_two_effects_that_look_the_same_and_are_wanted_at_once_meet(shop: Shop) -> None:
    """Each would read before the other is committed: so the second waits, and people are asked."""
    for n in range(12):
        key = f"pi_pay_{n}"
        seen = [key, key.replace("a", "\N{CYRILLIC SMALL LETTER A}")]
        sagas = [shop.open() for _ in seen]
        wanted = [{"charge": charge, "amount": 500} for charge in seen]
        in_threads(
            [
                partial(shop.propose, saga, "refund", "payments.settle", args=args)
                for saga, args in zip(sagas, wanted, strict=True)
            ]
        )
        found = Step.objects.filter(saga_id__in=sagas)
        assert sorted(step.state for step in found) == ["awaiting_approval", "queued"]


@pytest.mark.parametrize(
    ("row", "change"),
    [
        ("ledger_effectclaim", "released_at = now()"),
        ("ledger_effectclaim", "key = 'another'"),
        ("ledger_saga", "task_id = 'gone'"),
        ("ledger_saga", "opened_digest = repeat('0', 64)"),
        ("ledger_saga", "head_seq = 0"),
        ("ledger_saga", "head_hash = repeat('0', 64)"),
    ],
)
def test_by_what_a_saga_and_an_effect_are_found_is_frozen(
    shop: Shop, row: str, change: str
) -> None:
    """Either, changed by hand, let the same be done a second time."""
    committed_settle(shop)
    said = refused_by_hand(f"UPDATE {row} SET {change}")
    assert any(why in said for why in ("is held by a step that is committed", "is frozen", "head"))
    with pytest.raises(DatabaseError, match="counts: UPDATE of a saga"), transaction.atomic():
        storage.execute("UPDATE ledger_saga SET step_count = -5")


@pytest.mark.parametrize("table", ["ledger_idempotencyrecord", "ledger_attempt", "ledger_entry"])
def test_no_temporary_table_stands_in_for_one_that_a_wall_looks_into(
    shop: Shop, table: str
) -> None:
    """A temporary table hides ours from whoever does not say where he looks."""
    saga, step, _ = committed_settle(shop)
    whose = ("saga_id", saga) if table == "ledger_entry" else ("step_id", step.pk)
    with transaction.atomic():
        storage.execute(
            "CREATE TEMP TABLE ledger_tombstone ON COMMIT DROP AS "
            "SELECT id AS saga_id, head_seq + 1 AS seq FROM ledger_saga WHERE id = %s",
            [saga],
        )
        refused_by_hand(f"DELETE FROM public.{table} WHERE {whose[0]} = %s", whose[1])
