"""Lists of the API, each a page by key."""

from __future__ import annotations

import json
from typing import Any
from uuid import UUID

from ledger.queries import archived
from ledger.queries.documents import Absolute, Document, sagas, stamp
from ledger.queries.paging import page
from ledger.storage import rows


def list_sagas(
    *,
    absolute: Absolute,
    limit: int,
    after: UUID | None = None,
    agent_id: UUID | None = None,
    agent: str = "",
    task_id: str = "",
    state: str = "",
) -> Document:
    """Newest first. `agent_id` is the caller's own wall; the others are wishes, "" for any.

    Archived sagas are told of where a task is named, as they are when it is opened again.
    """
    conditions = {
        "g.id < %s": after,
        "g.agent_id = %s": agent_id,
        "g.agent_id = (SELECT id FROM ledger_agent WHERE name = %s)": agent,
        "g.task_id = %s": task_id,
        "g.state = %s": state,
    }
    wanted = {sql: value for sql, value in conditions.items() if value}
    where = "WHERE " + " AND ".join(wanted) if wanted else ""
    found = sagas(f"{where} ORDER BY g.id DESC LIMIT %s", [*wanted.values(), limit + 1], absolute)
    if task_id:
        found += archived.sagas_of_task(
            task_id,
            absolute,
            limit=limit + 1,
            after=after,
            agent_id=agent_id,
            agent=agent,
            state=state,
        )
        # Written alike, ids are in the order of their text.
        found.sort(key=lambda saga: str(saga["id"]), reverse=True)
    return page(found, limit, lambda saga: saga["id"])


_ENTRIES = """
SELECT seq, kind, step_id, at, actor, payload, prev_hash, hash
FROM ledger_entry WHERE saga_id = %s AND seq > %s ORDER BY seq LIMIT %s
"""


def list_entries(saga_id: UUID, *, after: int, limit: int) -> Document:
    """The saga's chain from `after` on, oldest first. `next_cursor` is the next `after`."""
    found = [_entry(row) for row in rows(_ENTRIES, [saga_id, after, limit + 1])]
    return page(found, limit, lambda entry: entry["seq"])


def _entry(row: Any) -> Document:
    return {
        "seq": row.seq,
        "kind": row.kind,
        "step_id": row.step_id or None,
        "at": stamp(row.at),
        "actor": row.actor,
        "payload": json.loads(row.payload),
        "prev_hash": row.prev_hash,
        "hash": row.hash,
    }


_FREEZES = """
SELECT id, scope, value, reason, created_by, created_at, expires_at, lifted_at, lifted_by
FROM ledger_freeze WHERE {}
"""
_ACTIVE = "lifted_at IS NULL AND (expires_at IS NULL OR expires_at > clock_timestamp())"


def list_freezes(*, limit: int, after: UUID | None) -> Document:
    """Freezes that stop something now, newest first."""
    sql = _FREEZES.format(_ACTIVE) + " AND (%s::uuid IS NULL OR id < %s) ORDER BY id DESC LIMIT %s"
    found = [_freeze(row) for row in rows(sql, [after, after, limit + 1])]
    return page(found, limit, lambda freeze: freeze["id"])


def freeze(freeze_id: UUID) -> Document | None:
    """One freeze, active or not."""
    found = rows(_FREEZES.format("id = %s"), [freeze_id])
    return _freeze(found[0]) if found else None


def _freeze(row: Any) -> Document:
    return {
        "id": str(row.id),
        "scope": row.scope,
        "value": row.value or None,
        "reason": row.reason,
        "created_by": row.created_by,
        "created_at": stamp(row.created_at),
        "expires_at": stamp(row.expires_at),
        "lifted_at": stamp(row.lifted_at),
        "lifted_by": row.lifted_by or None,
    }


def saga_exists(saga_id: UUID, *, agent_id: UUID | None) -> bool:
    """Whether there is this saga, and it is one of `agent_id` when that is given."""
    sql = "SELECT 1 AS found FROM ledger_saga WHERE id = %s AND (%s::uuid IS NULL OR agent_id = %s)"
    return bool(rows(sql, [saga_id, agent_id, agent_id]))
