"""Putting a question to people, and taking it back. Each call joins the ledger's transaction."""

from __future__ import annotations

import json
from collections.abc import Iterable
from uuid import UUID

from approvals import queries_limits
from approvals.policy import current, terms_as_json
from ledger import keys, storage
from ledger.gate import Held, Verdict
from ledger.models.fields import uuid7
from ledger.states import Direction

# An answered request keeps its answer; only what could still lead to a run is superseded.
SUPERSEDE = """
UPDATE approvals_approval SET superseded_by_id = %(id)s,
    state = CASE WHEN state IN ('pending', 'approved') THEN 'superseded' ELSE state END,
    ended_why = CASE WHEN state IN ('pending', 'approved') THEN %(why)s ELSE ended_why END,
    ended_at = CASE WHEN state IN ('pending', 'approved') THEN clock_timestamp() ELSE ended_at END
WHERE step_id = %(step)s AND direction = %(direction)s AND superseded_by_id IS NULL
    AND state IN ('pending', 'approved', 'change_requested', 'expired')
"""
INSERT = """
INSERT INTO approvals_approval (
    id, step_id, saga_id, direction, tool, tool_version, tool_digest, args_text, args_digest,
    idempotency_key, rule, policy_digest, needs, lasts, require_reason, why, state, ended_why,
    escalate_to, remind, delay, over_limits, reminders, created_at, expires_at, remind_at
)
SELECT %(id)s, %(step)s, %(saga)s, %(direction)s, %(tool)s, %(tool_version)s, %(tool_digest)s,
    %(args_text)s, %(args_digest)s, %(idempotency_key)s, %(rule)s, %(policy_digest)s,
    %(needs)s::jsonb, l.lasts, %(require_reason)s, %(why)s, 'pending', '',
    %(escalate_to)s, l.remind, %(delay_s)s::float8 * interval '1 second',
    %(over_limits)s::jsonb, 0, c.now, c.now + l.lasts, c.now + l.remind
FROM (SELECT clock_timestamp() AS now) c, (
    SELECT %(lasts_s)s::float8 * interval '1 second' AS lasts,
        nullif(%(remind_s)s::float8, 0) * interval '1 second' AS remind
) l
"""
_AGENT = "SELECT a.name FROM ledger_saga g JOIN ledger_agent a ON a.id = g.agent_id WHERE g.id = %s"
WITHDRAW = """
UPDATE approvals_approval SET state = 'cancelled', ended_at = clock_timestamp(), ended_why = %s
WHERE step_id = ANY(%s) AND (state = 'pending' OR state = 'approved' AND used_at IS NULL)
"""


@storage.transition
def ask(held: Held, verdict: Verdict) -> UUID:
    """Open the request; an older one of this step and direction is superseded.

    The digest is computed here, over the very text that people are shown.
    """
    args_text = keys.canonical(held.args)
    terms = verdict.terms or terms_as_json(current().terms)
    request = uuid7()
    row = {
        "id": request,
        "step": held.step,
        "saga": held.saga,
        "direction": held.direction,
        "tool": held.tool,
        "tool_version": held.tool_version,
        "tool_digest": held.tool_digest,
        "args_text": args_text,
        "args_digest": keys.fingerprint(args_text),
        "idempotency_key": held.idempotency_key,
        "rule": verdict.rule,
        "policy_digest": verdict.policy_digest,
        "needs": json.dumps(terms["need"]),
        "lasts_s": float(terms["expires_s"]),
        "require_reason": bool(terms.get("require_reason", False)),
        "escalate_to": terms.get("escalate_to", ""),
        "remind_s": float(terms.get("remind_s", 0)),
        "delay_s": float(terms.get("delay_s", 0)),
        "over_limits": json.dumps(_over_limits(held)),
        "why": held.why,
    }
    storage.execute(SUPERSEDE, {key: row[key] for key in ("id", "step", "direction", "why")})
    storage.execute(INSERT, row)
    return request


def _over_limits(held: Held) -> list[str]:
    """The limits that it would pass now: whoever says yes says it to that too."""
    limits = current().limits
    if not limits or held.direction != Direction.FORWARD:
        return []
    agent = storage.the_row(_AGENT, [held.saga]).name
    found = queries_limits.uses(limits, held.tool, agent, held.args, held.idempotency_key)
    return [use.limit.name for use in found if use.is_over]


def withdraw(steps: Iterable[UUID], why: str) -> int:
    """The steps will not run: cancel what is still asked, or approved and not used."""
    wanted = list(steps)
    return storage.execute(WITHDRAW, [why, wanted]) if wanted else 0
