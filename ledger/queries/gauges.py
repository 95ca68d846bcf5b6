"""Numbers for /metrics. None may count a table that grows: each stops at `AT_MOST`."""

from __future__ import annotations

from dataclasses import dataclass

from ledger.states import StepState
from ledger.storage import rows

# Beyond this a number says "far too many" and the exact one helps nobody.
AT_MOST = 10_000
# The states of the partial index ledger_step_attention.
WATCHED = (
    StepState.UNKNOWN,
    StepState.STUCK,
    StepState.EXECUTING,
    StepState.CHANGE_REQUESTED,
)
# The list is written out: a parameter could not be proven to lie within the index.
_STEPS = """
SELECT state, count(*) FROM (
    SELECT state FROM ledger_step
    WHERE state IN ('unknown', 'stuck', 'executing', 'change_requested') LIMIT %s
) watched GROUP BY state
"""
_OUTBOX = """
SELECT count(*) AS due,
    coalesce(extract(epoch FROM clock_timestamp() - min(due_at)), 0)::float AS oldest_s
FROM (
    SELECT due_at FROM ledger_outboxmessage
    WHERE taken_at IS NULL AND due_at <= clock_timestamp() ORDER BY due_at, id LIMIT %s
) due
"""
_SHIFTS = """
SELECT count(*) FROM ledger_shift WHERE ended_at IS NULL AND lease_until > clock_timestamp()
"""
_IGNORED = """
SELECT coalesce(sum(ignored), 0) FROM (
    SELECT ignored FROM ledger_shift WHERE ignored > 0 LIMIT %s
) told
"""


@dataclass(frozen=True, slots=True)
class Outbox:
    due: int
    oldest_s: float


def steps_by_state() -> dict[str, int]:
    """Steps in each watched state."""
    return {state.value: 0 for state in WATCHED} | dict(rows(_STEPS, [AT_MOST]))


def outbox() -> Outbox:
    """How much work is due and untaken, and since when."""
    return Outbox(*rows(_OUTBOX, [AT_MOST])[0])


def live_shifts() -> int:
    """Shifts that take work now."""
    return int(rows(_SHIFTS)[0][0])


def ignored_reports() -> int:
    """How often RQ delivered a shift's job again, or called it failed; that changed no state."""
    return int(rows(_IGNORED, [AT_MOST])[0][0])
