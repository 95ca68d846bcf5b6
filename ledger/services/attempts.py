"""How an attempt ends, and with it the record of its key."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from ledger import storage
from ledger.outcomes import Done, Failed, Outcome, Unknown
from ledger.rows import StepRow
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


_OPEN_DOUBT = """
SELECT 1 FROM ledger_attempt WHERE step_id = %s AND direction = %s AND alternative = %s
    AND state = 'unknown' AND NOT outcome ? 'settled' LIMIT 1
"""


def is_doubted(step: StepRow, direction: str) -> bool:
    """Whether an earlier attempt of this may have been carried out, for all that is known.

    A later one that was refused under the same key says nothing about it.
    """
    return storage.row(_OPEN_DOUBT, [step.id, direction, step.alternative]) is not None


def end_attempt(
    unit: Unit, attempt: UUID, outcome: Outcome, *, is_still_doubted: bool = False
) -> None:
    """Write the attempt's end and that of the record of its key.

    A key that an earlier attempt left in doubt has not certainly failed when this one has.
    """
    state, record = {
        Done: ("done", RecordState.EXECUTED),
        Failed: ("failed", RecordState.FAILED),
        Unknown: ("unknown", RecordState.PENDING),
    }[type(outcome)]
    if is_still_doubted and record == RecordState.FAILED:
        record = RecordState.PENDING
    unit.end_attempt(attempt, state, record, told(outcome))


def settle_attempts_in_doubt(step: UUID, direction: str, record: RecordState) -> None:
    """Close the records that doubt had left pending, once it is known what happened."""
    storage.execute(
        "UPDATE ledger_attempt SET outcome = outcome || jsonb_build_object('settled', %s::text) "
        "WHERE step_id = %s AND direction = %s AND state = 'unknown'",
        [record, step, direction],
    )
    storage.execute(
        "UPDATE ledger_idempotencyrecord SET state = %s, lease_until = NULL, "
        "updated_at = clock_timestamp() WHERE step_id = %s AND direction = %s "
        "AND state = 'pending'",
        [record, step, direction],
    )
