"""Passing a question on when its time is over, and reminding before. By the database's clock.

Both are a guarded change under the saga's lock, so any number of processes may try. A request
that is passed on is asked anew, and so told of as a new one; a reminder is told of here.
"""

from __future__ import annotations

from functools import partial
from typing import Any
from uuid import UUID

from approvals.services import spreading
from approvals.services.locking import lock_saga_of
from ledger import storage
from ledger.gate import Verdict
from ledger.services import gating

BATCH = 100

_OVERDUE = """
SELECT a.id, a.saga_id, a.step_id, s.step_id AS name, a.direction, a.rule, a.policy_digest,
    a.needs, a.escalate_to, a.args_digest, a.require_reason,
    extract(epoch FROM a.lasts)::float8 AS lasts_s, extract(epoch FROM a.delay)::float8 AS delay_s,
    coalesce(extract(epoch FROM a.remind), 0)::float8 AS remind_s
FROM approvals_approval a JOIN ledger_step s ON s.id = a.step_id
WHERE a.id = %s AND a.state = 'pending' AND a.escalate_to <> ''
    AND a.expires_at <= clock_timestamp()
"""
_TO_REMIND = """
SELECT id FROM approvals_approval
WHERE state = 'pending' AND remind_at <= clock_timestamp() AND expires_at > clock_timestamp()
ORDER BY remind_at LIMIT %s
"""
# The next time is the first of its row that is still to come: who slept through three reminders
# is reminded once.
_REMIND = """
UPDATE approvals_approval a SET reminders = reminders + 1, remind_at = a.remind_at + a.remind
    * (1 + floor(extract(epoch FROM c.now - a.remind_at) / extract(epoch FROM a.remind)))
FROM (SELECT clock_timestamp() AS now) c, ledger_step s
WHERE a.id = %s AND s.id = a.step_id AND a.state = 'pending'
    AND a.remind_at <= c.now AND a.expires_at > c.now
RETURNING a.saga_id, s.step_id AS name, a.direction, a.needs, a.reminders, a.rule,
    a.args_digest, a.expires_at
"""


def escalate(request: UUID) -> bool:
    """Ask the group that the policy names instead; False when there is nothing to pass on.

    As many people as before, and once only: after that it is a no. Joins the caller's
    transaction, which holds the saga's lock. Raises Superseded.
    """
    found = storage.row(_OVERDUE, [request])
    if found is None:
        return False
    count = sum(need["count"] for need in found.needs)
    terms: dict[str, Any] = {
        "need": [{"group": found.escalate_to, "count": count}],
        "expires_s": found.lasts_s,
        "require_reason": found.require_reason,
        "remind_s": found.remind_s,
        "delay_s": found.delay_s,
    }
    groups = " and ".join(need["group"] for need in found.needs)
    gating.journal(
        found.saga_id,
        "approval.escalated",
        step_id=found.name,
        actor="clock",
        payload={
            "approval": str(request),
            "direction": found.direction,
            "args_digest": found.args_digest,
            "rule": found.rule,
            "from": [need["group"] for need in found.needs],
            "to": found.escalate_to,
            "count": count,
        },
    )
    gating.ask_others(
        found.step_id,
        found.direction,
        Verdict("ask", found.rule, found.policy_digest, terms),
        why=f"Nobody of {groups} decided in time; now it is asked of {found.escalate_to}.",
        actor="clock",
    )
    return True


def remind() -> int:
    """Record the reminders that are due; how many."""
    return sum(storage.alone(partial(_remind, row.id)) for row in storage.rows(_TO_REMIND, [BATCH]))


@storage.transition
def _remind(request: UUID) -> bool:
    if not lock_saga_of(request, or_leave_it=True):
        return False
    found = storage.row(_REMIND, [request])
    if found is None:
        return False
    gating.journal(
        found.saga_id,
        "approval.reminded",
        step_id=found.name,
        actor="clock",
        payload={
            "approval": str(request),
            "direction": found.direction,
            "args_digest": found.args_digest,
            "rule": found.rule,
            "groups": [need["group"] for need in found.needs],
            "reminder": found.reminders,
            "expires_at": found.expires_at.isoformat(),
        },
    )
    spreading.remind(request, found.reminders)
    return True
