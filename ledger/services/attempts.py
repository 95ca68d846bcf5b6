"""How an attempt ends, and with it the record of its key."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from ledger import keys, storage
from ledger.outcomes import Done, Failed, Outcome, Unknown
from ledger.rows import StepRow
from ledger.services.asking import key_for
from ledger.services.unit import Unit
from ledger.states import Direction, RecordState

_PROMISE_KEY = """
INSERT INTO ledger_idempotencyrecord AS i (
    key, step_id, direction, fingerprint, state, created_at, updated_at
) VALUES (%s, %s, %s, %s, 'pending', clock_timestamp(), clock_timestamp())
ON CONFLICT (key) DO UPDATE SET state = 'pending' WHERE i.state = 'failed'
"""
_SPEND_KEY = """
UPDATE ledger_idempotencyrecord SET state = 'executed', lease_until = NULL, response = %s,
    updated_at = clock_timestamp()
WHERE key = %s AND state = 'pending'
"""

_STARTED = "SELECT 1 FROM ledger_attempt WHERE step_id = %s AND state = 'started' LIMIT 1"


def told(outcome: Outcome) -> dict[str, Any]:
    """An outcome as the ledger keeps it."""
    match outcome:
        case Done(result):
            return {"outcome": "done", "result": result}
        case Failed(error, retryable):
            return {"outcome": "failed", "error": error, "retryable": retryable}
        case Unknown(reason):
            return {"outcome": "unknown", "reason": reason}


def end_attempt(unit: Unit, attempt: UUID, outcome: Outcome) -> None:
    """Write the attempt's end and that of the record of its key."""
    state, record = {
        Done: ("done", RecordState.EXECUTED),
        Failed: ("failed", RecordState.FAILED),
        Unknown: ("unknown", RecordState.PENDING),
    }[type(outcome)]
    unit.end_attempt(attempt, state, record, told(outcome))


def settle_attempts_in_doubt(step: UUID, direction: str, record: RecordState) -> None:
    """Close the records that doubt had left pending, once it is known what happened."""
    storage.execute(
        "UPDATE ledger_idempotencyrecord SET state = %s, lease_until = NULL, "
        "updated_at = clock_timestamp() WHERE step_id = %s AND direction = %s "
        "AND state = 'pending'",
        [record, step, direction],
    )


def is_out(step: UUID) -> bool:
    """Whether a call of this step is out: one at a time (`ledger_attempt_one_at_a_time`)."""
    return storage.row(_STARTED, [step]) is not None


def spend_key(step: StepRow, direction: Direction, result: Any, *, how: str) -> None:
    """No later message, code or hand can use the key of what has happened after all.

    Whatever the record said before: `executed` is final, and is written before the end of an
    attempt under the same key, which then leaves it as it is.
    """
    key = key_for(step, direction)
    storage.execute(_PROMISE_KEY, [key, step.id, direction, step.variant.fingerprint])
    told_how = {"outcome": "done", "result": result, "how": how}
    storage.execute(_SPEND_KEY, [keys.storable(told_how)[0], key])
