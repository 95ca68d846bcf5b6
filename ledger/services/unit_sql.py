"""The statements of a `Unit`: a batch of rows is one statement."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

from ledger.rows import SagaRow, StepRow
from ledger.states import SAGA_ENDED, STEP_FINISHED


class Batch:
    """A statement over rows that are named `{rows}` in it, and have the columns given.

    Several come as one JSON parameter, with their ids beside it, for the planner: it takes a JSON
    list for a hundred rows and would read the whole table rather than its index. One row comes as
    plain parameters, which spares Postgres a third of an update's work (0.05 ms).
    """

    def __init__(self, sql: str, columns: str, *, ordered: bool = False) -> None:
        self.sql, self.columns = sql, columns
        fields = [column.split() for column in columns.split(",")]
        one = ", ".join(f"%({name})s::{kind} AS {name}" for name, kind in fields)
        many = f"json_to_recordset(%(rows)s::json) AS r({columns})"
        if ordered:
            names = ", ".join(name for name, _ in fields)
            many = (
                f"ROWS FROM (json_to_recordset(%(rows)s::json) AS ({columns})) "
                f"WITH ORDINALITY AS r({names}, n) ORDER BY r.n"
            )
        self._one = _IDS.sub("", sql.replace("{rows}", f"(SELECT {one}) AS r"))
        self._many = sql.replace("{rows}", many)

    def of(self, rows: Sequence[dict[str, Any]]) -> tuple[str, dict[str, Any]]:
        """The statement for these rows, JSON values all; there is at least one."""
        if len(rows) == 1:
            plain = {
                name: _dumps(value) if isinstance(value, dict | list) else value
                for name, value in rows[0].items()
            }
            plain["count"] = 1
            return self._one, plain
        ids = [row["id"] for row in rows if "id" in row]
        return self._many, {"rows": _dumps(rows), "ids": ids, "count": len(rows)}


_IDS = re.compile(r" AND \w+\.\w+ = ANY\(%\(ids\)s::\w+\[\]\)")


def _dumps(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


INSERT_ENTRIES = Batch(
    """
INSERT INTO ledger_entry (saga_id, kind, step_id, actor, payload, seq, at, state, prev_hash, hash)
SELECT r.saga_id, r.kind, r.step_id, r.actor, r.payload, r.seq, clock_timestamp(), '', '', ''
FROM {rows}
""",
    "saga_id uuid, seq bigint, kind text, step_id text, actor text, payload text",
    ordered=True,
)

# Who finds that somebody else was first undoes its whole transition (ledger/walls_sql.py).
UPDATE_STEPS = Batch(
    """
WITH changed AS (UPDATE ledger_step s SET
    state = r.state, fence = r.fence, attempts = r.attempts, reclaims = r.reclaims,
    alternative = r.alternative, held_why = r.held_why, confirmed_tool = r.confirmed_tool,
    result_text = r.result_text, error = r.error, residue = r.residue,
    executed_seq = r.executed_seq,
    executed_at = CASE WHEN r.executed_seq IS NULL THEN NULL
                       ELSE coalesce(s.executed_at, clock_timestamp()) END,
    finished_at = CASE WHEN r.finished THEN clock_timestamp() END
FROM {rows}
WHERE s.id = r.id AND s.id = ANY(%(ids)s::uuid[])
    AND s.state = r.was AND s.fence = r.fence_was
RETURNING 1) SELECT ledger_expect(count(*), %(count)s) FROM changed
""",
    "id uuid, was text, fence_was int, state text, fence int, attempts int, reclaims int, "
    "alternative int, held_why text, confirmed_tool text, result_text text, error jsonb, "
    "residue boolean, executed_seq bigint, finished boolean",
)

UPDATE_SAGAS = Batch(
    """
WITH changed AS (UPDATE ledger_saga g SET
    state = r.state, fence = r.fence, step_count = r.step_count, retries_used = r.retries_used,
    pivot_position = r.pivot_position, ended_backward_why = r.ended_backward_why,
    closed_at = CASE WHEN r.closed THEN coalesce(g.closed_at, clock_timestamp()) END,
    ended_at = CASE WHEN r.ended THEN clock_timestamp() END,
    updated_at = clock_timestamp()
FROM {rows}
WHERE g.id = r.id AND g.id = ANY(%(ids)s::uuid[]) AND g.state = r.was
RETURNING 1) SELECT ledger_expect(count(*), %(count)s) FROM changed
""",
    "id uuid, was text, state text, fence int, step_count int, retries_used int, "
    "pivot_position int, closed boolean, ended_backward_why text, ended boolean",
)

# Not while a promise of the step is open: its effect may be there, whatever its state says.
RELEASE_CLAIMS = """
UPDATE ledger_effectclaim c SET released_at = clock_timestamp()
WHERE c.step_id = ANY(%s::uuid[]) AND c.released_at IS NULL AND NOT EXISTS (
    SELECT FROM ledger_idempotencyrecord r
    WHERE r.step_id = c.step_id AND r.direction = 'forward' AND r.state = 'pending')
"""

RELEASE_HOLDS = "DELETE FROM ledger_resourcehold WHERE step_id = ANY(%s::uuid[])"

INSERT_MESSAGES = Batch(
    """
INSERT INTO ledger_outboxmessage (
    step_id, kind, direction, saga_fence, tool, agent, saga_id, resource, round, negatives,
    due_at, created_at, parked_why
)
SELECT r.step_id, r.kind, r.direction, r.saga_fence, r.tool, r.agent, r.saga_id, r.resource,
    r.round, r.negatives, clock_timestamp() + r.delay_s * interval '1 second', clock_timestamp(), ''
FROM {rows}
""",
    "step_id uuid, kind text, direction text, saga_fence int, tool text, agent text, "
    "saga_id uuid, resource text, round int, negatives int, delay_s float8",
)

# An attempt and the record of its key end together; `executed` is final, so a record that
# says so already is left as it is.
END_ATTEMPTS = Batch(
    """
WITH ending AS (
    SELECT * FROM {rows}
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
""",
    "id uuid, state text, record text, outcome text",
)


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
