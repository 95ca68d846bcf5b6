"""The statements of a `Unit`: rows come as one JSON parameter, so a batch is one statement."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from ledger.rows import SagaRow, StepRow
from ledger.states import SAGA_ENDED, STEP_FINISHED

INSERT_ENTRIES = """
INSERT INTO ledger_entry (saga_id, kind, step_id, actor, payload, seq, at, state, prev_hash, hash)
SELECT r.saga_id, r.kind, r.step_id, r.actor, r.payload, 0, clock_timestamp(), '', '', ''
FROM ROWS FROM (json_to_recordset(%(rows)s::json) AS (
    saga_id uuid, kind text, step_id text, actor text, payload text
)) WITH ORDINALITY AS r(saga_id, kind, step_id, actor, payload, n)
ORDER BY r.n
"""

# Who finds that somebody else was first undoes its whole transition (ledger/walls_sql.py).
UPDATE_STEPS = """
WITH changed AS (UPDATE ledger_step s SET
    state = r.state, fence = r.fence, attempts = r.attempts, reclaims = r.reclaims,
    alternative = r.alternative, held_why = r.held_why, confirmed_tool = r.confirmed_tool,
    result_text = r.result_text, error = r.error, residue = r.residue,
    executed_seq = r.executed_seq,
    executed_at = CASE WHEN r.executed_seq IS NULL THEN NULL
                       ELSE coalesce(s.executed_at, clock_timestamp()) END,
    finished_at = CASE WHEN r.finished THEN clock_timestamp() END
FROM json_to_recordset(%(rows)s::json) AS r(
    id uuid, was text, fence_was int, state text, fence int, attempts int, reclaims int,
    alternative int, held_why text, confirmed_tool text, result_text text, error jsonb,
    residue boolean, executed_seq bigint, finished boolean
)
WHERE s.id = r.id AND s.id = ANY(%(ids)s::uuid[])
    AND s.state = r.was AND s.fence = r.fence_was
RETURNING 1) SELECT ledger_expect(count(*), %(count)s) FROM changed
"""

UPDATE_SAGAS = """
WITH changed AS (UPDATE ledger_saga g SET
    state = r.state, fence = r.fence, step_count = r.step_count, retries_used = r.retries_used,
    pivot_position = r.pivot_position, ended_backward_why = r.ended_backward_why,
    closed_at = CASE WHEN r.closed THEN coalesce(g.closed_at, clock_timestamp()) END,
    ended_at = CASE WHEN r.ended THEN clock_timestamp() END,
    updated_at = clock_timestamp()
FROM json_to_recordset(%(rows)s::json) AS r(
    id uuid, was text, state text, fence int, step_count int, retries_used int,
    pivot_position int, closed boolean, ended_backward_why text, ended boolean
)
WHERE g.id = r.id AND g.id = ANY(%(ids)s::uuid[]) AND g.state = r.was
RETURNING 1) SELECT ledger_expect(count(*), %(count)s) FROM changed
"""

RELEASE_CLAIMS = """
UPDATE ledger_effectclaim SET released_at = clock_timestamp()
WHERE step_id = ANY(%s::uuid[]) AND released_at IS NULL
"""

RELEASE_HOLDS = "DELETE FROM ledger_resourcehold WHERE step_id = ANY(%s::uuid[])"

INSERT_MESSAGES = """
INSERT INTO ledger_outboxmessage (
    step_id, kind, direction, saga_fence, tool, agent, saga_id, resource, round, negatives,
    due_at, created_at, parked_why
)
SELECT r.step_id, r.kind, r.direction, r.saga_fence, r.tool, r.agent, r.saga_id, r.resource,
    r.round, r.negatives, clock_timestamp() + r.delay_s * interval '1 second', clock_timestamp(), ''
FROM json_to_recordset(%(rows)s::json) AS r(
    step_id uuid, kind text, direction text, saga_fence int, tool text, agent text,
    saga_id uuid, resource text, round int, negatives int, delay_s float8
)
"""

# An attempt and the record of its key end together; `executed` is final, so a record that
# says so already is left as it is.
END_ATTEMPTS = """
WITH ending AS (
    SELECT * FROM json_to_recordset(%(rows)s::json)
        AS r(id uuid, state text, record text, outcome text)
), attempt AS (
    UPDATE ledger_attempt a SET state = e.state, outcome = e.outcome::jsonb,
        ended_at = clock_timestamp()
    FROM ending e WHERE a.id = e.id AND a.id = ANY(%(ids)s::uuid[])
    RETURNING a.idempotency_key, e.record, e.outcome
)
UPDATE ledger_idempotencyrecord i SET state = a.record, lease_until = NULL,
    response = CASE WHEN a.record = 'executed' THEN a.outcome ELSE i.response END,
    updated_at = clock_timestamp()
FROM attempt a WHERE i.key = a.idempotency_key AND i.state = 'pending'
"""


def batch(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Rows as one JSON parameter. Their ids go beside it, for the planner: it takes a JSON list
    for a hundred rows and would read the whole table rather than its index."""
    return {
        "rows": json.dumps(rows, separators=(",", ":"), ensure_ascii=False),
        "ids": [row["id"] for row in rows if "id" in row],
        "count": len(rows),
    }


def step_change(step: StepRow) -> dict[str, Any]:
    return {
        "id": str(step.id),
        "was": step.was,
        "fence_was": step.fence_was,
        "state": step.state,
        "fence": step.fence,
        "attempts": step.attempts,
        "reclaims": step.reclaims,
        "alternative": step.alternative,
        "held_why": step.held_why,
        "confirmed_tool": step.confirmed_tool,
        "result_text": step.result_text,
        "error": step.error,
        "residue": step.residue,
        "executed_seq": step.executed_seq,
        "finished": step.state in STEP_FINISHED,
    }


def saga_change(saga: SagaRow) -> dict[str, Any]:
    return {
        "id": str(saga.id),
        "was": saga.was,
        "state": saga.state,
        "fence": saga.fence,
        "step_count": saga.step_count,
        "retries_used": saga.retries_used,
        "pivot_position": saga.pivot_position,
        "closed": saga.closed,
        "ended_backward_why": saga.ended_backward_why,
        "ended": saga.state in SAGA_ENDED,
    }
