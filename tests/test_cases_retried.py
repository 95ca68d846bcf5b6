"""Case C103: what Postgres breaks off is run again as a whole, and known by its SQLSTATE."""

from __future__ import annotations

import ast
import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from uuid import UUID, uuid4

import psycopg
import pytest
from django.db import connection

from ledger import storage
from ledger.models import EffectClaim, Entry
from ledger.services.proposing_sql import CLAIM_EFFECT
from tests.shop import Shop, assert_verifies, kinds

ROOT = Path(__file__).parent.parent


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
