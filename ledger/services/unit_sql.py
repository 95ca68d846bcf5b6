"""The statements of a `Unit`: locks and reads, and a batch of rows in one statement."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

from ledger.rows import (
    SAGA_AND_STEP_COLUMNS,
    SAGA_COLUMNS,
    STEP_COLUMNS,
    SagaRow,
    StepRow,
)
from ledger.states import SAGA_ENDED, STEP_FINISHED

_SAGAS = f"SELECT {SAGA_COLUMNS} FROM ledger_saga g JOIN ledger_agent a ON a.id = g.agent_id "  # noqa: S608
LOCK = f"{_SAGAS} WHERE g.id = ANY(%s) ORDER BY g.id FOR UPDATE OF g"
# Most transitions are about one: that spares the sort.
LOCK_ONE = f"{_SAGAS} WHERE g.id = %s FOR UPDATE OF g"
LOCK_OWN = f"{_SAGAS} WHERE g.id = %s AND g.agent_id = %s FOR UPDATE OF g"
# For who does not wait: no row of a saga that somebody else holds.
LOCK_OWN_IF_FREE = f"{LOCK_OWN} SKIP LOCKED"
READ = (
    f"SELECT {STEP_COLUMNS} FROM ledger_step s "  # noqa: S608 - the conditions are ours
    "JOIN ledger_toolversion v ON v.digest = s.tool_version_id WHERE {}"
)
_BOTH = (
    f"SELECT {SAGA_AND_STEP_COLUMNS} FROM ledger_step s "  # noqa: S608
    "JOIN ledger_saga g ON g.id = s.saga_id JOIN ledger_agent a ON a.id = g.agent_id "
    "JOIN ledger_toolversion v ON v.digest = s.tool_version_id "
)
LOCK_BOTH = f"{_BOTH} WHERE s.id = ANY(%s) ORDER BY g.id, s.id FOR UPDATE OF g, s"
LOCK_BOTH_ONE = f"{_BOTH} WHERE s.id = %s FOR UPDATE OF g, s"
LOCK_TAKEN = (
    "WITH taken AS MATERIALIZED ({}) "  # noqa: S608 - what is taken is ours too
    f"SELECT {SAGA_AND_STEP_COLUMNS}, t.* FROM taken t "
    "JOIN ledger_step s ON s.id = t.of_step "
    "JOIN ledger_saga g ON g.id = s.saga_id JOIN ledger_agent a ON a.id = g.agent_id "
    "JOIN ledger_toolversion v ON v.digest = s.tool_version_id "
    "ORDER BY g.id, s.id FOR UPDATE OF g, s"
)


class Batch:
    """A statement over rows that are named `{rows}` in it, and have the columns given.

    Several come as one JSON parameter, with their ids beside it, for the planner: it takes a JSON
    list for a hundred rows and would read the whole table rather than its index. One row comes as
    plain parameters, which spares Postgres a third of an update's work (0.05 ms); where that can be
    said more plainly, as the statements `one`.
    """

    def __init__(
        self, sql: str, columns: str, *, one: Sequence[str] = (), ordered: bool = False
    ) -> None:
        self.sql, self.columns = sql, columns
        fields = [column.split() for column in columns.split(",")]
        values = ", ".join(f"%({name})s::{kind} AS {name}" for name, kind in fields)
        many = f"json_to_recordset(%(rows)s::json) AS r({columns})"
        if ordered:
            names = ", ".join(name for name, _ in fields)
            many = (
                f"ROWS FROM (json_to_recordset(%(rows)s::json) AS ({columns})) "
                f"WITH ORDINALITY AS r({names}, n) ORDER BY r.n"
            )
        alone = one or [_IDS.sub("", sql)]
        self._one = [text.replace("{rows}", f"(SELECT {values}) AS r") for text in alone]
        self._many = sql.replace("{rows}", many)

    def of(self, rows: Sequence[dict[str, Any]], **more: Any) -> list[tuple[str, dict[str, Any]]]:
        """The statements for these rows, JSON values all; there is at least one."""
        if len(rows) == 1:
            plain = {
                name: _dumps(value) if isinstance(value, dict | list) else value
                for name, value in rows[0].items()
            }
            plain |= more | {"count": 1}
            return [(text, plain) for text in self._one]
        ids = [row["id"] for row in rows if "id" in row]
        return [(self._many, more | {"rows": _dumps(rows), "ids": ids, "count": len(rows)})]


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

_STEP_SET = """
    state = r.state, fence = r.fence, attempts = r.attempts, reclaims = r.reclaims,
    alternative = r.alternative, held_why = r.held_why, confirmed_tool = r.confirmed_tool,
    result_text = r.result_text, error = r.error, residue = r.residue,
    executed_seq = r.executed_seq,
    executed_at = CASE WHEN r.executed_seq IS NULL THEN NULL
                       ELSE coalesce(s.executed_at, clock_timestamp()) END,
    finished_at = CASE WHEN r.finished THEN clock_timestamp() END
FROM {rows}
WHERE s.id = r.id"""

# Who finds that somebody else was first undoes its whole transition (ledger/walls_sql.py).
UPDATE_STEPS = Batch(
    f"""
WITH changed AS (UPDATE ledger_step s SET {_STEP_SET} AND s.id = ANY(%(ids)s::uuid[])
    AND s.state = r.was AND s.fence = r.fence_was
RETURNING 1) SELECT ledger_expect(count(*), %(count)s) FROM changed
""",  # noqa: S608 - the columns are ours
    "id uuid, was text, fence_was int, state text, fence int, attempts int, reclaims int, "
    "alternative int, held_why text, confirmed_tool text, result_text text, error jsonb, "
    "residue boolean, executed_seq bigint, finished boolean",
    # Of a row that is found: a step does not go, or its saga goes with it and takes no entry.
    one=[
        f"""
UPDATE ledger_step s SET {_STEP_SET}
    AND ledger_expect((s.state = r.was AND s.fence = r.fence_was)::int, 1) = 1
"""  # noqa: S608
    ],
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
# says so already is left as it is. An attempt ends once: of one that has ended meanwhile, an entry
# has told, and who has not read it is refused with his own.
END_ATTEMPTS = Batch(
    """
WITH ending AS (
    SELECT * FROM {rows}
), attempt AS (
    UPDATE ledger_attempt a SET state = e.state, outcome = e.outcome::jsonb,
        ended_at = clock_timestamp()
    FROM ending e WHERE a.id = e.id AND a.id = ANY(%(ids)s::uuid[]) AND a.state = 'started'
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
