"""How an attempt ends, and with it the record of its key."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from ledger import storage
from ledger.outcomes import Done, Failed, Outcome, Unknown
from ledger.services.unit import Unit
from ledger.states import RecordState


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
