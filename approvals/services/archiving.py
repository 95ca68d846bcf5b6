"""What the gate keeps of a saga, when the saga leaves for an export or comes back from one.

Every call but `decisions_in` joins the ledger's transaction; the walls see to it that rows leave
only with their saga (ledger/doors).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any
from uuid import UUID

from approvals.doors import EXPORTED
from approvals.limits import LONGEST_S
from ledger import storage
from ledger.services.exporting import insert_rows

Rows = Mapping[str, Sequence[Mapping[str, Any]]]

# The last first: a decision is found by its request.
_LEAVE = [
    f"DELETE FROM {table} t WHERE {where}".format(saga="%s")  # noqa: S608 - names of ours
    for table, where in reversed(EXPORTED)
]


def lines(saga: UUID) -> list[str]:
    """The rows of each table, by id."""
    found = storage.rows("SELECT line FROM approvals_saga_lines(%s) AS l(line)", [saga])
    return [row.line for row in found]


def leave(saga: UUID) -> None:
    for statement in _LEAVE:
        storage.execute(statement, [saga])


def put_back(rows: Rows) -> None:
    for table, _ in EXPORTED:
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
