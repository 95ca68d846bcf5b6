"""A saga as lines of an export, and rows of an export as rows again."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any
from uuid import UUID

from django.db import connection
from psycopg import sql

from ledger import storage
from ledger.exports import SagaLines
from ledger.gate import gate

_ABOUT = """
SELECT g.task_id, g.name, a.name AS agent, g.state FROM ledger_saga g
JOIN ledger_agent a ON a.id = g.agent_id WHERE g.id = %s
"""


def saga_lines(saga_id: UUID) -> SagaLines | None:
    """All that is kept of a saga, or None when it is not here.

    Several statements: read it in a transaction that holds the saga's lock, or one snapshot.
    """
    about = storage.row(_ABOUT, [saga_id])
    if about is None:
        return None
    ours = storage.rows("SELECT line FROM ledger_saga_lines(%s) AS l(line)", [saga_id])
    lines = [row.line for row in ours] + list(gate().lines(saga_id))
    return SagaLines(str(saga_id), about._asdict(), lines)


def insert_rows(table: str, rows: Sequence[Mapping[str, Any]]) -> None:
    """Insert rows as an export has them, in one statement. Joins the caller's transaction.

    A column that the export does not know (it is older) takes the database's default. `table` is
    a name of ours; those of columns come from a file, and are quoted.
    """
    if not rows:
        return
    names = sql.SQL(", ").join(sql.Identifier(name) for name in rows[0])
    statement = sql.SQL(
        "INSERT INTO {table} ({names}) SELECT {names} "
        "FROM jsonb_populate_recordset(NULL::{table}, %s::jsonb)"
    ).format(table=sql.Identifier(table), names=names)
    with connection.cursor() as cursor:
        cursor.execute(
            statement.as_string(cursor.connection), [json.dumps(rows, ensure_ascii=False)]
        )
