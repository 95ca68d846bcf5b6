"""What Postgres itself promises here: frozen digests, claims one at a time, retries as a whole."""

from __future__ import annotations

import ast
import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from uuid import UUID, uuid4

import psycopg
import pytest
from django.db import DatabaseError, connection, transaction

from ledger import storage
from ledger.models import EffectClaim, Entry, IdempotencyRecord, Step
from ledger.services.proposing_sql import CLAIM_EFFECT
from ledger.walls_sql import REFUSED
from tests.shop import Shop, assert_verifies, kinds, states, work

ROOT = Path(__file__).parent.parent


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
        line = threading.Barrier(2)

        def submit(saga: UUID, charge: str, line: threading.Barrier = line) -> object:
            line.wait(30)
            args = {"charge": charge, "amount": 500}
            return shop.propose(saga, "refund", "payments.settle", args=args)

        both = [
            Submit(partial(submit, saga, charge)) for saga, charge in zip(sagas, seen, strict=True)
        ]
        for one in both:
            one.join(30)
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
    with pytest.raises(DatabaseError, match="ledger_saga_step_count"), transaction.atomic():
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


@contextmanager
def rival() -> Iterator[psycopg.Connection]:
    """Another session of the application's own role, in a transaction."""
    params = connection.get_connection_params()
    kept = ("dbname", "user", "password", "host", "port")
    with psycopg.connect(**{key: params[key] for key in kept if key in params}) as other:
        yield other
        other.rollback()


def wait_until_blocked_by(other: psycopg.Connection) -> None:
    deadline = time.monotonic() + 10
    sql = "SELECT count(*) AS n FROM pg_stat_activity WHERE %s = ANY(pg_blocking_pids(pid))"
    while not storage.the_row(sql, [other.info.backend_pid]).n:
        assert time.monotonic() < deadline, "nobody waits for the rival"
        time.sleep(0.01)


class Submit(threading.Thread):
    """One proposal in a thread, with what it came to."""

    def __init__(self, ask: Callable[[], object]) -> None:
        super().__init__()
        self.ask = ask
        self.answer: object = None
        self.start()

    def run(self) -> None:
        try:
            self.answer = self.ask()
        except Exception as error:
            self.answer = error
        finally:
            connection.close()


def again_after(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [m.rpartition(" ")[2] for m in caplog.messages if m.startswith("running _propose again")]


def test_a_deadlock_is_run_again_as_a_whole_and_succeeds(
    shop: Shop, caplog: pytest.LogCaptureFixture
) -> None:
    """Case C103: a real 40P01. The proposal holds its saga and waits for a claim; the rival
    holds the claim and waits for the saga. Whoever has waited for a second finds the circle
    and is cut: the proposal, unless the machine was so busy that the rival came late."""
    caplog.set_level(logging.INFO, "ledger.storage")
    for _ in range(5):
        saga, submit, key = deadlocked(shop)
        assert submit.answer.kind == "accepted", submit.answer
        assert EffectClaim.objects.get(key=key).step_id == submit.answer.step
        assert kinds(saga, "step.proposed") == [("step.proposed", "refund")]
        if again_after(caplog):
            break
    assert again_after(caplog) == ["40P01"]
    assert_verifies()


def deadlocked(shop: Shop) -> tuple[UUID, Submit, str]:
    """A proposal that was in a circle with a rival, whichever of the two was cut."""
    args = {"charge": shop.charge(), "amount": 500}
    saga, elsewhere = shop.open(), shop.open()
    holder = shop.propose(elsewhere, "one", "crm.customer", args={"email": "x@example.com"}).step
    key = f"refund:{args['charge']}"
    with rival() as other:
        other.execute(CLAIM_EFFECT, [uuid4(), key, key, holder])
        submit = Submit(lambda: shop.propose(saga, "refund", "payments.settle", args=args))
        wait_until_blocked_by(other)
        with suppress(psycopg.errors.DeadlockDetected):
            other.execute("SELECT 1 FROM ledger_saga WHERE id = %s FOR UPDATE", [saga])
        other.rollback()
        submit.join(30)
    return saga, submit, key


def test_a_serialization_failure_is_run_again_as_a_whole_and_succeeds(
    shop: Shop, caplog: pytest.LogCaptureFixture
) -> None:
    """Case C103: a real 40001, on a server whose default is stricter than ours."""
    caplog.set_level(logging.INFO, "ledger.storage")
    saga = shop.open()

    def propose() -> object:
        storage.execute("SET default_transaction_isolation TO 'repeatable read'")
        try:
            return shop.propose(saga, "one", "crm.customer", args={"email": "x@example.com"})
        finally:
            storage.execute("SET default_transaction_isolation TO 'read committed'")

    with rival() as other:
        other.execute("UPDATE ledger_saga SET retries_used = retries_used WHERE id = %s", [saga])
        submit = Submit(propose)
        wait_until_blocked_by(other)
        other.commit()
        submit.join(30)
    assert again_after(caplog) == ["40001"]
    assert submit.answer.kind == "accepted", submit.answer
    assert Entry.objects.filter(saga_id=saga, kind="step.proposed").count() == 1
    assert_verifies()


def test_no_code_reads_the_words_of_a_database_error() -> None:
    """Case C103: a server in another language says them otherwise; SQLSTATEs are the same."""
    words = ("could not serialize", "deadlock detected", "duplicate key", "violates", "timeout: ")
    for file in (
        path
        for app in ("ledger", "approvals", "saga_console")
        for path in (ROOT / app).rglob("*.py")
    ):
        tree = ast.parse(file.read_text(encoding="utf-8"))
        prose = {
            id(node.body[0].value)
            for node in ast.walk(tree)
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef)
            and node.body
            and isinstance(node.body[0], ast.Expr)
        }
        for node in ast.walk(tree):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                found = [word for word in words if word in node.value.lower()]
                assert id(node) in prose or not found, (file, node.lineno, found)
