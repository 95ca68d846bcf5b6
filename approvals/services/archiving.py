"""What the gate keeps of a saga, when the saga leaves for an export or comes back from one.

Every call but `decisions_in` joins the ledger's transaction; the walls see to it that rows leave
only with their saga (ledger/doors).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from uuid import UUID

from ledger import storage
from ledger.services.exporting import insert_rows

Rows = Mapping[str, Sequence[Mapping[str, Any]]]

_OF_REQUESTS = "t.approval_id IN (SELECT a.id FROM approvals_approval a WHERE a.saga_id = %s)"
# Every table whose rows belong to one saga, in the order in which they can be put back. A test
# looks for foreign keys that lead here and are not in it.
TABLES = {
    "approvals_approval": "t.saga_id = %s",
    "approvals_decision": _OF_REQUESTS,
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


def decisions_in(rows: Rows) -> Mapping[str, Mapping[str, Any]]:
    """As `approvals.queries.decisions_as_told` has it."""
    return {
        row["id"]: {
            "approval": row["approval_id"],
            "actor": f"person:{row['username']}",
            **{name: row[name] for name in ("answer", "args_digest", "reason", "via")},
        }
        for row in rows.get("approvals_decision", ())
    }
