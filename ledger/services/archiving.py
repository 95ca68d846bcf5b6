"""Retention: ended sagas leave for an export, and each leaves a tombstone that answers for it.

In this order, so that a crash at any point loses nothing and the next run finishes: the whole
file is written, synced and renamed into place; then the database learns of it; then saga by
saga, each in one transaction of its own, the tombstone is made and the rows go. What changed
in between stays, and leaves with a later export.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

from django.db import DatabaseError, connection, transaction

from ledger import storage
from ledger.doors.exported import EXPORTED, SPENT
from ledger.doors.leaving import OPEN
from ledger.exports import UNFINISHED, BadExport, SagaLines, Writer, file_digest, read
from ledger.gate import gate
from ledger.models.fields import uuid7
from ledger.services.checkpoints import anchor
from ledger.services.exporting import saga_lines
from ledger.services.forgetting import Forgotten, forget
from ledger.services.verifying_exports import saga_lines_faults
from ledger.walls_sql import REFUSED

logger = logging.getLogger(__name__)
Say = Callable[[str], Any]

# One archive at a time; the number is only this lock's name.
LOCK = 7_240_002
# Ids read at once: few enough to hold, enough that reading them costs nothing beside the rest.
BATCH = 500
# How often a long run says how far it is.
TELL_EVERY = 1_000
# Ids of sagas begin with the clock of the process that opened them; databases' clocks differ.
SKEW = timedelta(days=1)
ACTOR = "command:archive"
PREFIX, SUFFIX = "sagas-", ".jsonl"

_CLOSED = " AND ".join(f"NOT ({holds})" for why, holds in OPEN if "chain" not in why)
_RESIDUE = """EXISTS (SELECT FROM ledger_step s WHERE s.saga_id = g.id AND s.residue)
    AND NOT EXISTS (SELECT FROM ledger_entry e
        WHERE e.saga_id = g.id AND e.kind = 'residue.acknowledged')"""
# Old is what nobody has asked about or added to for so long: a replay writes an entry, too.
_OLD = """g.state IN ('completed', 'compensated')
    AND g.updated_at < clock_timestamp() - %(older_than)s::interval
    AND g.created_at < clock_timestamp() - %(older_than)s::interval"""
DUE = f"""
SELECT g.id FROM ledger_saga g
WHERE {_OLD} AND g.id > %(after)s AND g.id < %(before)s AND {_CLOSED}
    AND (%(with_residue)s OR NOT ({_RESIDUE}))
ORDER BY g.id LIMIT %(limit)s
"""  # noqa: S608 - conditions of ours
HELD_BACK = f"""
SELECT count(*) FILTER (WHERE NOT ({_CLOSED})) AS open,
    count(*) FILTER (WHERE {_CLOSED} AND {_RESIDUE}) AS residue
FROM ledger_saga g WHERE {_OLD}
"""  # noqa: S608 - conditions of ours
BURY = """
INSERT INTO ledger_tombstone (id, saga_id, export_id, sha256, gate_sha256, actor)
VALUES (%s, %s, %s, %s, %s, %s)
"""
KNOW = """
INSERT INTO ledger_export (id, name, folder, sha256, size, sagas, entries, made_by, made_at)
VALUES (%s, %s, %s, %s, %s, %s, %s, %s, clock_timestamp())
"""
UNFINISHED_EXPORTS = """
SELECT id, name, folder, sha256 FROM ledger_export WHERE finished_at IS NULL ORDER BY made_at
"""
FINISHED = "UPDATE ledger_export SET finished_at = clock_timestamp() WHERE id = %s"
# The rows go in the order in which they hang on each other; a tool's version may be shared.
LEAVE = [
    f"DELETE FROM {table} t WHERE {where.replace('which', '%(saga)s')}"  # noqa: S608 - ours
    for table, where in [
        *(
            (table, "t.step_id IN (SELECT s.id FROM ledger_step s WHERE s.saga_id = which)")
            for table in SPENT
        ),
        *((table, where) for table, where, _ in reversed(EXPORTED) if "toolversion" not in table),
    ]
]


class ArchiveBusy(Exception):
    """Another archive runs on this ledger."""


@dataclass(frozen=True, slots=True)
class Wish:
    """What shall leave, and where to."""

    older_than: timedelta
    folder: Path
    with_residue: bool = False
    actor: str = ACTOR


@dataclass(slots=True)
class Report:
    """`path`: the export of this run, if anything was due; `left`: sagas that left by it."""

    path: Path | None = None
    exported: int = 0
    left: int = 0
    finished: int = 0
    forgotten: Forgotten = field(default_factory=Forgotten)


def archive(wish: Wish, say: Say = logger.info) -> Report:
    """Archive what is due, after finishing what an earlier run left unfinished; then forget what
    belongs to nothing that is still here.

    Raises ArchiveBusy, OSError (the folder cannot be written), BadExport (a file is not what
    was written there: nothing more leaves by it).
    """
    if not storage.the_row("SELECT pg_try_advisory_lock(%s) AS mine", [LOCK]).mine:
        raise ArchiveBusy
    try:
        report = Report(finished=finish_unfinished(wish.actor, say))
        _clean(wish.folder, say)
        anchor()
        export = _write(wish, report, say)
        if export is not None:
            report.left = _bury_all(*export, wish.actor, say)
        anchor()
        report.forgotten = forget(wish.older_than)
        return report
    finally:
        storage.the_row("SELECT pg_advisory_unlock(%s) AS mine", [LOCK])


def due(wish: Wish) -> Iterator[UUID]:
    """The sagas that may leave, the oldest first."""
    after = UUID(int=0)
    oldest = storage.the_row("SELECT clock_timestamp() AS now").now - wish.older_than + SKEW
    while True:
        values = {
            "older_than": wish.older_than,
            "with_residue": wish.with_residue,
            "after": after,
            # An id begins with its milliseconds (RFC 9562): no younger saga is looked at.
            "before": UUID(int=max(0, int(oldest.timestamp() * 1000)) << 80),
            "limit": BATCH,
        }
        found = [row.id for row in storage.rows(DUE, values)]
        yield from found
        if len(found) < BATCH:
            return
        after = found[-1]


def held_back(wish: Wish) -> tuple[int, int]:
    """Old sagas that may not leave: with something open; with residue nobody acknowledged."""
    row = storage.the_row(HELD_BACK, {"older_than": wish.older_than})
    return row.open, row.residue


def _write(wish: Wish, report: Report, say: Say) -> tuple[UUID, Path] | None:
    """Write the export of what is due and make it known; None when nothing is."""
    ids = due(wish)
    first = next(ids, None)
    if first is None:
        return None
    export, made_at = uuid7(), storage.the_row("SELECT clock_timestamp() AS now").now
    name = f"{PREFIX}{made_at:%Y%m%dT%H%M%SZ}-{export.hex[-8:]}{SUFFIX}"
    path = wish.folder.resolve() / name
    about = {"id": str(export), "made_at": made_at.isoformat(), "made_by": wish.actor}
    with Writer(path, **about) as writer:
        for saga_id in _chain(first, ids):
            _add(writer, saga_id, say)
        if not writer.sagas:
            return None
        sha256 = writer.finish()
    known = [export, name, str(path.parent), sha256, writer.size, writer.sagas, writer.entries]
    storage.execute(KNOW, [*known, wish.actor])
    say(f"{writer.sagas} sagas are in {path}")
    report.path, report.exported = path, writer.sagas
    return export, path


def _chain(first: UUID, rest: Iterator[UUID]) -> Iterator[UUID]:
    yield first
    yield from rest


def _add(writer: Writer, saga_id: UUID, say: Say) -> None:
    """A saga that does not verify stays: an export must not make a forgery look settled."""
    with transaction.atomic():
        if not connection.savepoint_ids:
            storage.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
        saga = saga_lines(saga_id)
    if saga is None:
        return
    if fault := next(saga_lines_faults(saga), None):
        say(f"it stays, because it does not verify: {fault}")
        return
    writer.add(saga)
    if writer.sagas % TELL_EVERY == 0:
        say(f"{writer.sagas} sagas written")


def finish_unfinished(actor: str, say: Say) -> int:
    """Let what earlier exports hold leave, if it still can; how many sagas left."""
    left = 0
    for export in storage.rows(UNFINISHED_EXPORTS):
        path = Path(export.folder) / export.name
        if not path.exists():
            say(f"{path} is not there; what it holds and is still here stays, and leaves anew")
            storage.execute(FINISHED, [export.id])
            continue
        say(f"finishing {path}")
        left += _bury_all(export.id, path, actor, say)
    return left


def _bury_all(export: UUID, path: Path, actor: str, say: Say) -> int:
    """Every saga of a file, read back from the disk: only what is there leaves."""
    known = storage.the_row("SELECT sha256 FROM ledger_export WHERE id = %s", [export])
    if file_digest(path) != known.sha256:
        raise BadExport(f"{path} is not the file that was written: nothing leaves by it")
    left = 0
    for number, saga in enumerate(read(path), start=1):
        left += _bury_one(saga, export, actor, say)
        if number % TELL_EVERY == 0:
            say(f"{number} sagas looked at, {left} have left")
    storage.execute(FINISHED, [export])
    say(f"{left} sagas have left by {path.name}")
    return left


def _bury_one(saga: SagaLines, export: UUID, actor: str, say: Say) -> bool:
    try:
        return bury(UUID(saga.id), export, saga.end, actor=actor)
    except DatabaseError as error:
        if storage.sqlstate(error) != REFUSED:
            raise
        say(f"it stays: {str(error).splitlines()[0]}")
        return False


@storage.transition
def bury(saga_id: UUID, export: UUID, end: Mapping[str, Any], *, actor: str) -> bool:
    """Let one saga go, below its tombstone; False when it is gone already, or in use just now.

    `end`: its last line in the export, with the digests. A database error with SQLSTATE `REFUSED`
    says why it must stay (ledger/doors, and the gate's own).
    """
    lock = "SELECT 1 FROM ledger_saga WHERE id = %s FOR UPDATE SKIP LOCKED"
    if storage.row(lock, [saga_id]) is None:
        return False
    storage.execute(BURY, [uuid7(), saga_id, export, end["sha256"], end["gate_sha256"], actor])
    gate().leave(saga_id)
    for statement in LEAVE:
        storage.execute(statement, {"saga": saga_id})
    return True


def _clean(folder: Path, say: Say) -> None:
    """Remove what a killed run left unfinished: nothing has ever left by such a file."""
    folder.mkdir(parents=True, exist_ok=True)
    for path in folder.glob(f"{PREFIX}*{SUFFIX}{UNFINISHED}"):
        say(f"removing {path.name}, which a run that was killed left")
        path.unlink()
