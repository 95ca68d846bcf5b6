"""A superuser can switch the triggers off, and write what they like. They are found out."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import psycopg
import pytest

from tests.proofcast import Agent, Console, address, approve, refund, step, wait_for_states

KEPT = (
    *("ledger_saga", "ledger_step", "ledger_entry", "ledger_checkpoint"),
    *("ledger_checkpointhead", "approvals_decision"),
)


@contextmanager
def tampering(console: Console) -> Iterator[psycopg.Connection[dict[str, Any]]]:
    """A superuser with every trigger off; afterwards each row is as it was before."""
    with console.database("postgres") as superuser:
        superuser.execute("SET session_replication_role = replica")
        for table in KEPT:
            superuser.execute(f"CREATE TEMP TABLE kept_{table} AS TABLE {table}")
        try:
            yield superuser
        finally:
            superuser.execute("SET session_replication_role = replica")
            with superuser.transaction():
                for table in KEPT:
                    superuser.execute(f"DELETE FROM {table}")
                    superuser.execute(f"INSERT INTO {table} TABLE kept_{table}")


def faults(console: Console) -> str:
    done = console.manage("verify_ledger")
    assert done.returncode == 1, done.stdout + done.stderr
    return str(done.stdout)


@dataclass(frozen=True)
class Forgery:
    """What a superuser does to one saga, and the entry that it is named with: its number, or
    below 1 counted from the last, or no entry at all."""

    named: int | None
    statements: tuple[str, ...]

    def name(self, saga: str, head: int) -> str:
        if self.named is None:
            return f"saga {saga}: "
        return f"saga {saga}, entry {self.named if self.named > 0 else head + self.named}: "


def entry(change: str, seq: int = 2) -> str:
    return f"UPDATE ledger_entry SET {change} WHERE saga_id = %(saga)s AND seq = {seq}"


def row(change: str, table: str = "step", key: str = "saga_id") -> str:
    return f"UPDATE ledger_{table} SET {change} WHERE {key} = %(saga)s"


def cut(where: str = "true", table: str = "entry", key: str = "saga_id") -> str:
    return f"DELETE FROM ledger_{table} WHERE {key} = %(saga)s AND {where}"


REWIND = (
    "UPDATE ledger_saga SET head_seq = e.seq, head_hash = e.hash FROM ledger_entry e "
    "WHERE id = %(saga)s AND e.saga_id = id AND e.seq = head_seq - 1"
)
FORGET = row("head_seq = 0, head_hash = repeat('0', 64)", "saga", "id")
LAST = "seq = %(head)s"
CHANGED = {
    "one byte": Forgery(2, (entry("payload = overlay(payload PLACING '!' FROM 3)"),)),
    "an actor": Forgery(2, (entry("actor = 'eve'"),)),
    "a kind": Forgery(3, (entry("kind = 'step.failed'", 3),)),
    "a time": Forgery(3, (entry("at = at + interval '1 microsecond'", 3),)),
    "a hash": Forgery(2, (entry("hash = repeat('0', 64)"),)),
    "an order": Forgery(2, (entry("seq = 99", 2), entry("seq = 2", 3), entry("seq = 3", 99))),
    "the copy of a state": Forgery(0, (entry("state = 'failed'", 4),)),
}
CUT = {
    "an entry in the middle": Forgery(3, (cut("seq = 2"),)),
    "the last entry": Forgery(-1, (cut(LAST),)),
    "the last entry of an anchored chain": Forgery(0, (REWIND, cut(LAST))),
    "every entry of an anchored chain": Forgery(0, (FORGET, cut())),
    "a step": Forgery(0, (cut(table="step"),)),
    "a whole saga": Forgery(0, (cut(), cut(table="step"), cut(table="saga", key="id"))),
}
ROWS = {
    "a step's state": Forgery(0, (row("state = 'compensated'"),)),
    "a saga's state": Forgery(1, (row("state = 'stuck'", "saga", "id"),)),
    "its args": Forgery(2, (row("args_text = '{}'"),)),
    "its digest": Forgery(2, (row("fingerprint = repeat('0', 64)"),)),
    "its result": Forgery(0, (row("result_text = '{}'"),)),
    "its result, forgotten": Forgery(0, (row("result_text = NULL"),)),
    "its place in the order of undoing": Forgery(0, (row("executed_seq = 1"),)),
}


@pytest.mark.parametrize("forgeries", [CHANGED, CUT, ROWS], ids=["changed", "cut", "rows"])
def test_what_a_superuser_does_is_named_with_its_saga_and_entry(
    console: Console, prover: Agent, forgeries: dict[str, Forgery]
) -> None:
    sagas = {what: prover.open(step("one", address())) for what in forgeries}
    wait_for_states(prover, list(sagas.values()), "committed")
    heads = {what: prover.entries(saga)[-1]["seq"] for what, saga in sagas.items()}
    console.anchor()
    with tampering(console) as superuser:
        for what, forgery in forgeries.items():
            for statement in forgery.statements:
                values = {"saga": sagas[what], "head": heads[what]}
                assert superuser.execute(statement, values).rowcount, what
        told = faults(console)
    for what, forgery in forgeries.items():
        named = forgery.name(sagas[what], heads[what])
        assert named in told, f"{what}: {named!r} is not in\n{told}"


def test_a_head_taken_out_of_an_anchor_is_named(console: Console, prover: Agent) -> None:
    saga = prover.open(step("one", address()))
    wait_for_states(prover, [saga], "committed")
    console.anchor()
    with tampering(console) as superuser:
        found: Any = superuser.execute("SELECT max(id) AS id FROM ledger_checkpoint").fetchone()
        superuser.execute("DELETE FROM ledger_checkpointhead WHERE saga_id = %s", [saga])
        assert f"checkpoint {found['id']} does not match its heads" in faults(console)


@pytest.fixture(scope="session")
def approved(console: Console, prover: Agent) -> str:
    """A saga whose refund a person has approved."""
    saga = refund(console, prover)
    approve(console.operator("bo"), saga)
    wait_for_states(prover, [saga], "committed")
    return saga


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ("UPDATE approvals_decision SET answer = 'reject', username = 'eve'", "actor, answer"),
        ("DELETE FROM approvals_decision", "no row"),
    ],
)
def test_a_decision_that_was_changed_or_taken_away_is_named(
    console: Console, approved: str, change: str, said: str
) -> None:
    with tampering(console) as superuser:
        found: Any = superuser.execute(
            "SELECT d.id FROM approvals_decision d "
            "JOIN approvals_approval a ON a.id = d.approval_id WHERE a.saga_id = %s",
            [approved],
        ).fetchone()
        superuser.execute(change)
        told = faults(console)
    assert f"saga {approved}, entry " in told
    assert f"decision {found['id']} has " in told
    assert said in told


REWOUND = """
UPDATE ledger_step SET state = 'queued', executed_at = NULL, executed_seq = NULL,
    result_text = NULL, finished_at = NULL WHERE saga_id = %s
"""
OWED = """
INSERT INTO ledger_outboxmessage (step_id, kind, direction, saga_fence, tool, agent, saga_id,
    resource, round, negatives, due_at, created_at, parked_why)
SELECT id, 'run', 'forward', 0, tool, 'prover', saga_id, '', 0, 0, now(), now(), ''
FROM ledger_step WHERE saga_id = %s
"""


def test_a_committed_step_that_is_rewound_behind_the_ledger_does_not_run_again(
    console: Console, prover: Agent
) -> None:
    """The record of its key is the second wall: `executed` is final, whatever the step says."""
    email = address()
    saga = prover.open(step("one", email))
    wait_for_states(prover, [saga], "committed")
    with tampering(console) as superuser:
        superuser.execute(REWOUND, [saga])
        superuser.execute("SET session_replication_role = origin")  # and so the workers are woken
        superuser.execute(OWED, [saga])
        wait_for_states(prover, [saga], "stuck")
        kinds = prover.kinds(saga)
    assert (kinds["step.refused"], kinds["attempt.started"]) == (1, 1)
    assert len(console.customers(email)) == 1
