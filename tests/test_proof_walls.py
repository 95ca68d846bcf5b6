"""What psql can do to a running console as the application's own role: nothing."""

from __future__ import annotations

import psycopg
import pytest

from ledger.walls_sql import REFUSED
from tests.proofcast import Agent, Console, address, approve, refund, step, wait_for_states

CALL_OUT = """
INSERT INTO ledger_attempt (id, step_id, direction, alternative, fence, token, idempotency_key,
    shift_id, round, state, started_at, lease_until)
SELECT gen_random_uuid(), id, 'forward', 0, 1, gen_random_uuid(), idempotency_key,
    gen_random_uuid(), 0, 'started', now(), now() + interval '1 minute'
FROM ledger_step WHERE state = 'awaiting_approval'
"""
CALL_OUT_FOR_NOBODY = """
INSERT INTO ledger_attempt (id, step_id, direction, alternative, fence, token, idempotency_key,
    shift_id, round, state, started_at, lease_until)
VALUES (gen_random_uuid(), gen_random_uuid(), 'forward', 0, 1, gen_random_uuid(), 'k',
    gen_random_uuid(), 0, 'started', now(), now() + interval '1 minute')
"""
SAY_YES = """
UPDATE approvals_approval SET state = 'approved', ended_at = now(), decided_at = now(),
    yes_until = now() + interval '1 day' WHERE state = 'pending'
"""


def of_committed(change: str) -> str:
    return f"UPDATE ledger_step SET {change} WHERE state = 'committed'"


def of_executed(change: str) -> str:
    return f"UPDATE ledger_idempotencyrecord SET {change} WHERE state = 'executed'"


# Each would be the one line that makes the ledger lie.
FORGERIES = {
    "change an entry": "UPDATE ledger_entry SET payload = payload || ' '",
    "change a hash": "UPDATE ledger_entry SET hash = prev_hash",
    "delete an entry": "DELETE FROM ledger_entry WHERE seq = 2",
    "empty the ledger": "TRUNCATE ledger_entry",
    "empty it from above": "TRUNCATE ledger_saga CASCADE",
    "change an anchor": "UPDATE ledger_checkpoint SET root = prev_root",
    "delete an anchor": "DELETE FROM ledger_checkpoint",
    "empty the anchors": "TRUNCATE ledger_checkpoint CASCADE",
    "change an anchored head": "UPDATE ledger_checkpointhead SET seq = seq - 1",
    "delete an anchored head": "DELETE FROM ledger_checkpointhead",
    "empty the tombstones": "TRUNCATE ledger_tombstone",
    "empty what the tombstones answer": "TRUNCATE ledger_steptombstone CASCADE",
    "empty the effects of the tombstones": "TRUNCATE ledger_claimtombstone",
    "empty the exports": "TRUNCATE ledger_export CASCADE",
    "empty the restorations": "TRUNCATE ledger_restoration",
    "change a decision": "UPDATE approvals_decision SET username = 'eve'",
    "delete a decision": "DELETE FROM approvals_decision",
    "empty the decisions": "TRUNCATE approvals_decision CASCADE",
    "approve by hand": SAY_YES,
    "forget a request": "DELETE FROM approvals_approval",
    "run a committed step": of_committed("state = 'queued'"),
    "run it now": of_committed("state = 'executing'"),
    "change a state and not tell": of_committed("state = 'compensating'"),
    "skip the gate and not tell": (
        "UPDATE ledger_step SET state = 'queued' WHERE state = 'awaiting_approval'"
    ),
    "talk the verdict round": "UPDATE ledger_step SET verdict = 'allow' WHERE verdict = 'ask'",
    "change args": of_committed("args_text = '{}'"),
    "change another tool in": of_committed("tool = 'crm.blind'"),
    "change the key": of_committed("idempotency_key = repeat('0', 64)"),
    "change a result": of_committed("result_text = '{}'"),
    "forget an effect": of_committed("executed_at = NULL, executed_seq = NULL"),
    "open an ended saga": (
        "UPDATE ledger_saga SET state = 'running', ended_at = NULL WHERE state = 'completed'"
    ),
    "stick a saga and not tell": "UPDATE ledger_saga SET state = 'stuck' WHERE state = 'running'",
    "promise a spent key again": of_executed("state = 'pending'"),
    "change a stored answer": of_executed("response = '{}'"),
    "call out without a yes": CALL_OUT,
    "call out for no step": CALL_OUT_FOR_NOBODY,
    "move an attempt to a step that waits for a yes": (
        "UPDATE ledger_attempt SET step_id = (SELECT id FROM ledger_step "
        "WHERE state = 'awaiting_approval' LIMIT 1), fence = 99 WHERE state = 'done'"
    ),
    "give an attempt another key": "UPDATE ledger_attempt SET idempotency_key = 'another'",
    "turn an attempt round": "UPDATE ledger_attempt SET direction = 'compensate'",
    "end an attempt a second time": (
        "UPDATE ledger_attempt SET state = 'failed' WHERE state = 'done'"
    ),
    "end it as nobody does": "UPDATE ledger_attempt SET state = 'gone'",
    "try less often than never": "UPDATE ledger_attempt SET round = -1",
    "go back behind the first fence": "UPDATE ledger_attempt SET fence = -1",
    "run another choice than any": "UPDATE ledger_attempt SET alternative = -1",
    "send a message of no kind": "UPDATE ledger_outboxmessage SET kind = 'walk'",
    "send it under no fence": "UPDATE ledger_outboxmessage SET saga_fence = -1",
    "send it in no round": "UPDATE ledger_outboxmessage SET round = -1",
    "count looks backwards": "UPDATE ledger_outboxmessage SET negatives = -1",
    "count steps backwards": "UPDATE ledger_saga SET step_count = -1",
    "write a record that nobody knows": of_executed("state = 'lost'"),
}


@pytest.fixture(scope="session")
def waiting(console: Console, prover: Agent) -> str:
    """A ledger with something of everything: ended, running, approved, anchored, waiting.

    The id of the saga that waits for a person."""
    ended = prover.open(step("one", address()))
    wait_for_states(prover, [ended], "committed")
    prover.client.post(f"sagas/{ended}/complete").raise_for_status()
    decided = refund(console, prover)
    approve(console.operator("ana"), decided)
    wait_for_states(prover, [decided], "committed")
    waiting = refund(console, prover)
    assert prover.states(waiting) == ["awaiting_approval"]
    console.anchor()
    return waiting


def test_the_application_is_no_superuser_and_cannot_become_one(console: Console) -> None:
    with console.database() as saga:
        row = saga.execute("SELECT * FROM pg_roles WHERE rolname = current_user").fetchone()
        assert row is not None
        powers = ("rolsuper", "rolreplication", "rolbypassrls", "rolcreaterole")
        assert [row[power] for power in powers] == [False] * 4
        for statement in ("SET session_replication_role = replica", "SET ROLE postgres"):
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                saga.execute(statement)


@pytest.mark.usefixtures("waiting")
@pytest.mark.parametrize("what", FORGERIES)
def test_the_applications_own_role_is_refused(console: Console, what: str) -> None:
    with console.database() as saga, pytest.raises(psycopg.Error) as caught:
        saga.execute(FORGERIES[what])
    assert caught.value.sqlstate == REFUSED, caught.value


def test_after_every_refusal_nothing_has_changed(
    console: Console, prover: Agent, waiting: str
) -> None:
    assert prover.states(waiting) == ["awaiting_approval"]
    charge = prover.saga(waiting)["steps"][0]["args"]["charge"]
    assert console.refunds(charge) == []
    console.assert_verifies()
