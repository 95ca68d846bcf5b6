"""Silence until the end is a no. Judged by the database's clock, whoever notices it first."""

from __future__ import annotations

from functools import partial
from uuid import UUID

from approvals.services.escalating import escalate, remind
from approvals.services.locking import lock_saga_of
from ledger import storage
from ledger.services import gating
from ledger.services.unit import Superseded

# Requests that one sweep ends: enough for a burst, few enough that a sweep stays short.
BATCH = 100

DUE = """
SELECT id FROM approvals_approval WHERE state = 'pending' AND expires_at <= clock_timestamp()
ORDER BY expires_at LIMIT %s
"""
# Whose time is over and who has nobody to be passed on to: an escalation is a question anew.
EXPIRE = """
UPDATE approvals_approval SET state = 'expired', ended_at = clock_timestamp()
WHERE id = %s AND state = 'pending' AND expires_at <= clock_timestamp() AND escalate_to = ''
RETURNING id, step_id, direction, args_digest, policy_digest, rule
"""
CANCEL = """
UPDATE approvals_approval SET state = 'cancelled', ended_at = clock_timestamp(),
    ended_why = 'the step no longer waits'
WHERE id = %s AND state = 'pending'
"""
# What the agent reads: that it waits no more, and what it can do about it (case D2).
UNANSWERED = (
    "Nobody answered in time, and nothing was run. To ask again, submit it as a new step; "
    "in a new saga when this one has turned back."
)


def sweep() -> int:
    """End, pass on and remind of what is due; how many. Safe in any number of processes."""
    return (
        sum(storage.alone(partial(_end_or_cancel, row.id)) for row in storage.rows(DUE, [BATCH]))
        + remind()
    )


def _end_or_cancel(request: UUID) -> bool:
    """One request in its own transaction."""
    try:
        return _end(request)
    except Superseded:
        storage.execute(CANCEL, [request])
        return True


@storage.transition
def _end(request: UUID) -> bool:
    # Who finds the saga locked leaves it: its holder, or the next sweep, will see to it.
    return lock_saga_of(request, or_leave_it=True) and expire(request)


def expire(request: UUID) -> bool:
    """End one request whose time is over, or pass it on; False when there was nothing to do.

    Joins the caller's transaction, which holds the saga's lock. Raises Superseded.
    """
    if escalate(request):
        return True
    found = storage.row(EXPIRE, [request])
    if found is None:
        return False
    gating.refuse(
        found.step_id,
        found.direction,
        why="expired",
        actor="clock",
        payload={
            "approval": str(found.id),
            "args_digest": found.args_digest,
            "policy": found.policy_digest,
            "rule": found.rule,
            "reason": UNANSWERED,
        },
    )
    return True
