"""Archived sagas come back from an export: as they left, or not at all."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import UUID

from django.db import DatabaseError

from ledger import storage
from ledger.doors import SEALED
from ledger.doors.exported import EXPORTED
from ledger.exports import BadExport, SagaLines, file_digest, read
from ledger.gate import gate
from ledger.models import Saga
from ledger.models.fields import uuid7
from ledger.services.exporting import insert_rows
from ledger.services.latewords import hear_words
from ledger.services.verifying import verify_saga
from ledger.services.verifying_exports import saga_lines_faults
from ledger.walls_sql import REFUSED

ACTOR = "command:restore"

_TOMBSTONE = """
SELECT t.seq, t.sha256, t.at, t.actor, t.payload, t.prev_hash, t.hash,
    t.payload::jsonb ->> 'gate_sha256' AS gate_sha256, x.name AS file, x.sha256 AS file_sha256
FROM ledger_tombstone t JOIN ledger_export x ON x.id = t.export_id
WHERE t.saga_id = %s ORDER BY t.seq DESC LIMIT 1
"""
_COMES_BACK = """
INSERT INTO ledger_restoration (id, saga_id, actor) VALUES (%s, %s, %s)
"""
_VERSIONS = """
INSERT INTO ledger_toolversion
SELECT * FROM jsonb_populate_record(NULL::ledger_toolversion, %s::jsonb)
ON CONFLICT (digest) DO NOTHING
"""
_TOLD = """
INSERT INTO ledger_entry (saga_id, seq, kind, step_id, at, actor, payload, state, prev_hash, hash)
VALUES (%s, 0, 'saga.restored', '', clock_timestamp(), %s, '{}', '', '', '')
"""


class NotRestored(Exception):
    """Why a saga did not come back."""


@dataclass(frozen=True, slots=True)
class Restored:
    """`why_not`: '' when the saga came back, or was back already (`is_news` tells)."""

    saga: str
    why_not: str = ""
    is_news: bool = True


def restore_file(path: Path, *, only: UUID | None = None, actor: str = ACTOR) -> Iterator[Restored]:
    """Put back the sagas of an export, each in a transaction of its own.

    The whole file is verified first, whatever is wanted of it: raises BadExport, OSError.
    """
    found = False
    for _ in read(path):
        pass
    whole = file_digest(path)
    for saga in read(path):
        if only is not None and saga.id != str(only):
            continue
        found = True
        yield _restored(saga, whole, actor)
    if only is not None and not found:
        raise BadExport(f"{path.name} does not hold the saga {only}")


def _restored(saga: SagaLines, file_sha256: str, actor: str) -> Restored:
    try:
        return Restored(saga.id, is_news=restore(saga, file_sha256, actor=actor))
    except NotRestored as error:
        return Restored(saga.id, str(error))
    except DatabaseError as error:
        if storage.sqlstate(error) != REFUSED:
            raise
        return Restored(saga.id, str(error).splitlines()[0])


@storage.transition
def restore(saga: SagaLines, file_sha256: str, *, actor: str) -> bool:
    """Put one saga back; False when it is here already, restored from these very lines.

    Its chain goes on after the seal with `saga.restored`. Raises NotRestored: its lines do not
    verify, are not those that left, or the saga is here and is not from them.
    """
    if fault := next(saga_lines_faults(saga), None):
        raise NotRestored(f"it does not verify: {fault}")
    tombstone = storage.row(_TOMBSTONE, [saga.id])
    if tombstone is None:
        raise NotRestored("this ledger has no tombstone of it: it did not leave from here")
    _check_is_what_left(saga, file_sha256, tombstone)
    if Saga.objects.filter(pk=saga.id).exists():
        if _came_back(saga.id, tombstone.seq):
            return False
        raise NotRestored("it is here already")
    storage.execute(_COMES_BACK, [uuid7(), saga.id, actor])
    _put_back(saga)
    insert_rows("ledger_entry", [_seal(saga.id, tombstone)])
    storage.execute(_TOLD, [saga.id, actor])
    if fault := next(verify_saga(Saga.objects.get(pk=saga.id)), None):
        raise NotRestored(f"it would not verify: {fault}")
    hear_words(UUID(saga.id), actor=actor)
    return True


def _check_is_what_left(saga: SagaLines, file_sha256: str, tombstone: Any) -> None:
    """By the digests that the seal is over; raises NotRestored.

    Seals of earlier releases are not over what the gate keeps. What left below one comes back
    only from the very file that it left by, whose digest the ledger has.
    """
    if saga.end["sha256"] != tombstone.sha256:
        raise NotRestored("this is not what left: its tombstone has another digest")
    if tombstone.gate_sha256 is None:
        if file_sha256 != tombstone.file_sha256:
            raise NotRestored(
                "its tombstone is of a release whose seals were not over what people decided, so "
                f"it comes back only from {tombstone.file}, as that was written"
            )
    elif saga.end["gate_sha256"] != tombstone.gate_sha256:
        raise NotRestored(
            "what was asked and decided about it is not what left: its tombstone has another digest"
        )


def _came_back(saga_id: str, seq: int) -> bool:
    found = "SELECT 1 FROM ledger_restoration WHERE saga_id = %s AND seq = %s"
    return storage.row(found, [saga_id, seq]) is not None


def _put_back(saga: SagaLines) -> None:
    """The rows as they were; the chain begins at nothing and grows entry by entry."""
    for version in saga.rows("ledger_toolversion"):
        storage.execute(_VERSIONS, [json.dumps(version)])
    for table, _, _ in EXPORTED:
        if table == "ledger_toolversion":
            continue
        if table == "ledger_entry":
            gate().put_back(saga.of_the_gate())
        rows = saga.rows(table)
        if table == "ledger_saga":
            rows = [row | {"head_seq": 0, "head_hash": "0" * 64} for row in rows]
        insert_rows(table, rows)


def _seal(saga_id: str, tombstone: Any) -> Mapping[str, Any]:
    return {
        "saga_id": saga_id,
        "seq": tombstone.seq,
        "kind": SEALED,
        "step_id": "",
        "at": tombstone.at.isoformat(),
        "actor": tombstone.actor,
        "payload": tombstone.payload,
        "state": "",
        "prev_hash": tombstone.prev_hash,
        "hash": tombstone.hash,
    }
