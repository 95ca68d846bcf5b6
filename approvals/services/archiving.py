"""What the gate keeps of a saga, when the saga leaves for an export or comes back from one.

Every call but `decisions_in` joins the ledger's transaction; the walls see to it that rows leave
only with their saga (ledger/doors).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any
from uuid import UUID

from approvals.limits import LONGEST_S
from ledger import storage
from ledger.services.exporting import insert_rows

Rows = Mapping[str, Sequence[Mapping[str, Any]]]

_OF_REQUESTS = "t.approval_id IN (SELECT a.id FROM approvals_approval a WHERE a.saga_id = %s)"
# Every table whose rows belong to one saga, in the order in which they can be put back. A test
# looks for foreign keys that lead here and are not in it.
TABLES = {
    "approvals_approval": "t.saga_id = %s",
    "approvals_decision": _OF_REQUESTS,
    "approvals_review": _OF_REQUESTS,
}


def lines(saga: UUID) -> list[str]:
    """The rows of each table, by id."""
    found = []
    for table, where in TABLES.items():
        query = (
            f"SELECT jsonb_build_object('table', '{table}', 'row', to_jsonb(t))::text AS line "  # noqa: S608 - names and conditions are ours
            f"FROM {table} t WHERE {where} ORDER BY t.id"
        )
        found += [row.line for row in storage.rows(query, [saga])]
    return found


def leave(saga: UUID) -> None:
    """The last first: a decision is found by its request."""
    for table, where in reversed(TABLES.items()):
        storage.execute(f"DELETE FROM {table} t WHERE {where}", [saga])  # noqa: S608 - as above


def put_back(rows: Rows) -> None:
    for table in TABLES:
        insert_rows(table, rows.get(table, ()))


# Given back, or older than any window and of a step that has left: the walls let no other go.
_FORGET = """
DELETE FROM approvals_reservation WHERE id IN (
    SELECT r.id FROM approvals_reservation r
    WHERE r.reserved_at < clock_timestamp() - %(older_than)s::interval
        AND (r.returned_at IS NOT NULL
            OR r.reserved_at < clock_timestamp() - %(longest_s)s * interval '1 second'
            AND NOT EXISTS (SELECT FROM ledger_step s WHERE s.id = r.step_id))
    ORDER BY r.id LIMIT %(batch)s)
"""
_BATCH = 1_000


def forget(older_than: timedelta) -> int:
    """Delete reservations that count for nothing any more; how many. A batch a transaction."""
    gone, told = 0, {"older_than": older_than, "longest_s": LONGEST_S, "batch": _BATCH}
    while count := storage.execute(_FORGET, told):
        gone += count
    return gone


def decisions_in(rows: Rows) -> Mapping[str, Mapping[str, Any]]:
    """As `approvals.queries.decisions_as_told` has it."""
    return {
        row["id"]: {
            "approval": row["approval_id"],
            "actor": f"person:{row['username']}",
            **{name: row[name] for name in ("answer", "args_digest", "reason", "via")},
            # Exports of before know neither.
            "stands_for": row.get("stands_for_name") or None,
            "incident": row.get("incident") or None,
        }
        for row in rows.get("approvals_decision", ())
    }
