"""What time brings: leases that ran out. A loop's work, never a start-up step (case C40)."""

from __future__ import annotations

from uuid import UUID

from ledger import storage
from ledger.outcomes import Unknown
from ledger.services.attempts import end_attempt
from ledger.services.reconciling import plan
from ledger.services.tooling import Parked, tool_to_run
from ledger.services.unit import Unit
from ledger.states import Direction, StepState

# Rows that one sweep takes: enough for a burst, few enough that a sweep stays short.
BATCH = 100

# Taken messages are only of use to somebody who looks into a fault of the last day.
PURGE = """
DELETE FROM ledger_outboxmessage WHERE id IN (
    SELECT id FROM ledger_outboxmessage
    WHERE taken_at < clock_timestamp() - interval '1 day' AND lease_until IS NULL LIMIT 1000
)
"""


def expired_attempts() -> list[UUID]:
    """Attempts whose lease has run out; each is then looked at under its saga's lock."""
    found = storage.rows(
        "SELECT id FROM ledger_attempt WHERE state = 'started' "
        "AND lease_until < clock_timestamp() ORDER BY lease_until LIMIT %s",
        [BATCH],
    )
    return [row.id for row in found]


@storage.transition
def expire_attempt(attempt_id: UUID) -> bool:
    """A lease that ran out leads to finding out, never by itself to running again (rule 5.6).

    State, fence and lease are checked again under the lock: the worker may have answered, or
    renewed, since the sweep read its list (case C06).
    """
    where = storage.row("SELECT step_id FROM ledger_attempt WHERE id = %s", [attempt_id])
    if where is None:
        return False
    unit = Unit("clock")
    unit.lock_with_steps([where.step_id])
    attempt = storage.row(
        "SELECT * FROM ledger_attempt WHERE id = %s AND state = 'started' "
        "AND lease_until < clock_timestamp() FOR UPDATE",
        [attempt_id],
    )
    if attempt is None:
        return False
    step = unit.steps[where.step_id]
    saga = unit.sagas[step.saga_id]
    direction = Direction(attempt.direction)
    reason = "the worker's lease ran out before it answered"
    end_attempt(unit, attempt.id, Unknown(reason))
    step.reclaims += 1
    step.dirty = True
    step.error = {"code": "unknown", "detail": reason}
    facts = {"direction": direction.value, "fence": attempt.fence, "reason": reason}
    if direction == Direction.FORWARD and step.state == StepState.EXECUTING:
        unit.move(step, StepState.UNKNOWN, "attempt.expired", **facts)
    else:
        unit.entry(saga, "attempt.expired", step, **facts)
        if direction == Direction.FORWARD or step.state != StepState.COMPENSATING:
            unit.flush()
            return True
    tool = tool_to_run(step, direction)
    if isinstance(tool, Parked):
        # Whoever has the tool can say how it is found out; where nobody has, the look is parked.
        unit.send(step, "probe", direction)
    else:
        plan(unit, saga, step, direction, tool=tool, round_no=attempt.round)
    unit.flush()
    return True


def return_lost_looks() -> int:
    """Looks whose worker went away are due again; looking twice does no harm."""
    return storage.execute(
        "UPDATE ledger_outboxmessage SET taken_at = NULL, lease_until = NULL, "
        "due_at = clock_timestamp() WHERE kind = 'probe' AND lease_until < clock_timestamp()"
    )


def purge_messages() -> int:
    """Drop old taken messages. The ledger keeps the facts; these rows were only intentions."""
    return storage.execute(PURGE)
