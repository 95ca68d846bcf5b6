"""A saga as lines of an export, and rows of an export as rows again."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from uuid import UUID

from django.db import connection, transaction
from psycopg import sql

from ledger import storage
from ledger.errors import NotFound
from ledger.exports import SagaLines, Writer, read
from ledger.gate import gate

_ABOUT = """
SELECT g.task_id, g.name, a.name AS agent, g.state FROM ledger_saga g
JOIN ledger_agent a ON a.id = g.agent_id WHERE g.id = %s
"""

_ABOUT_NAMES = ("task_id", "name", "agent", "state")
_LEFT_BY = """
SELECT x.name, x.folder FROM ledger_tombstone t JOIN ledger_export x ON x.id = t.export_id
WHERE t.saga_id = %s ORDER BY t.seq DESC LIMIT 1
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


def write_one(saga_id: UUID, path: Path, *, actor: str) -> None:
    """Write the export of one saga, wherever it is: here, or in the export that it left by.

    Raises NotFound (no such saga, or its file is not where it was put), BadExport, OSError.
    """
    with transaction.atomic():
        if not connection.savepoint_ids:
            storage.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
        found, made_at = saga_lines(saga_id), storage.the_row("SELECT clock_timestamp() AS now").now
    with Writer(path, made_at=made_at.isoformat(), made_by=actor) as writer:
        writer.add(found or _archived(saga_id))
        writer.finish()


def _archived(saga_id: UUID) -> SagaLines:
    left = storage.row(_LEFT_BY, [saga_id])
    if left is None:
        raise NotFound(f"There is no saga {saga_id}.")
    path = Path(left.folder) / left.name
    if not path.exists():
        raise NotFound(f"The saga is archived in {left.name}, which is not in {left.folder} now.")
    for saga in read(path):
        if saga.id == str(saga_id):
            return SagaLines(saga.id, {name: saga.about[name] for name in _ABOUT_NAMES}, saga.lines)
    raise NotFound(f"{left.name} does not hold the saga any more.")


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
