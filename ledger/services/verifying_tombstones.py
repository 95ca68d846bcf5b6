"""Tombstones verified: each seal is what its content says, and stands where its saga stood."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any
from uuid import UUID

from ledger import storage
from ledger.chain import entry_hash
from ledger.doors import SEALED
from ledger.replay import Fault

# Tombstones read at once.
PAGE = 500
# Where `seals` has the number of a saga's newest seal.
LAST = 0

_TOMBSTONES = """
SELECT t.saga_id, t.seq, t.at, t.actor, t.payload, t.prev_hash, t.hash, t.task_id, t.name,
    t.opened_digest, t.state, t.steps, t.sha256, t.gate_sha256, a.name AS agent, x.name AS export,
    g.head_seq IS NOT NULL AS is_here, e.hash AS entry_hash, r.seq IS NOT NULL AS came_back,
    (SELECT count(*) FROM ledger_steptombstone s WHERE s.saga_id = t.saga_id) AS answers,
    (SELECT max(n.seq) FROM ledger_tombstone n WHERE n.saga_id = t.saga_id) = t.seq AS is_newest
FROM ledger_tombstone t
JOIN ledger_agent a ON a.id = t.agent_id JOIN ledger_export x ON x.id = t.export_id
LEFT JOIN ledger_saga g ON g.id = t.saga_id
LEFT JOIN ledger_entry e ON e.saga_id = t.saga_id AND e.seq = t.seq
LEFT JOIN ledger_restoration r ON r.saga_id = t.saga_id AND r.seq = t.seq
WHERE (t.saga_id, t.seq) > (%s, %s) ORDER BY t.saga_id, t.seq LIMIT %s
"""
_ANSWERS = """
SELECT s.id, s.saga_id, s.step_id, s.tool, s.fingerprint, s.idempotency_key, s.state,
    s.result_text, s.error::text AS error,
    (SELECT array_agg(c.key) FROM ledger_claimtombstone c WHERE c.step_id = s.id) AS claims
FROM ledger_steptombstone s WHERE s.saga_id = ANY(%s)
"""
_ORPHANS = """
SELECT s.saga_id, s.step_id FROM ledger_steptombstone s
WHERE NOT EXISTS (SELECT 1 FROM ledger_tombstone t WHERE t.saga_id = s.saga_id) LIMIT 1
"""
_SEALS = "SELECT saga_id, seq, hash, prev_hash FROM ledger_tombstone WHERE saga_id = ANY(%s)"


def tombstone_faults() -> Iterator[Fault]:
    """Every fault of every tombstone, in the order of sagas."""
    after: tuple[UUID, int] = (UUID(int=0), 0)
    while found := storage.rows(_TOMBSTONES, [*after, PAGE]):
        told = _told_answers([row.saga_id for row in found])
        for row in found:
            if why := _fault(row, told.get(row.saga_id, [])):
                yield Fault(str(row.saga_id), row.seq, f"its tombstone: {why}")
        after = (found[-1].saga_id, found[-1].seq)
    for row in storage.rows(_ORPHANS):
        yield Fault(str(row.saga_id), None, f"step {row.step_id!r} is buried below no tombstone")


def seals(sagas: Sequence[UUID]) -> Mapping[tuple[UUID, int], Any]:
    """The hash of each seal and of the entry before it; under `LAST` the newest seal's number."""
    found: dict[tuple[UUID, int], Any] = {}
    for row in storage.rows(_SEALS, [list(sagas)]):
        found[row.saga_id, row.seq] = row.hash
        found[row.saga_id, row.seq - 1] = row.prev_hash
        found[row.saga_id, LAST] = max(row.seq, found.get((row.saga_id, LAST), 0))
    return found


def _fault(row: Any, answers: Sequence[str]) -> str:
    sealed = entry_hash(
        prev_hash=row.prev_hash,
        saga_id=row.saga_id,
        seq=row.seq,
        kind=SEALED,
        step_id="",
        at=row.at,
        actor=row.actor,
        payload=row.payload,
    )
    if sealed != row.hash:
        return "its content does not match its hash"
    said = {
        "export": row.export,
        "sha256": row.sha256,
        "gate_sha256": row.gate_sha256,
        "agent": row.agent,
        "task_id": row.task_id,
        "name": row.name,
        "opened_digest": row.opened_digest,
        "outcome": row.state,
        "steps": row.steps,
    }
    if row.is_newest:
        # A saga that came back and left again answers as it left last.
        said["answers"] = _digest("\n".join(sorted(answers)))
    # Seals of earlier releases are not over what the gate keeps.
    told = {"gate_sha256": ""} | json.loads(row.payload)
    if wrong := sorted(name for name in said if told.get(name) != said[name]):
        return f"it has another {', '.join(wrong)} than its seal"
    if row.steps != row.answers:
        return f"it stands for {row.steps} steps, and {row.answers} are buried"
    if row.is_here and (row.entry_hash != row.hash or not row.came_back):
        return "its saga is here, and did not come back by a restoration"
    return ""


def _told_answers(sagas: Sequence[UUID]) -> Mapping[UUID, list[str]]:
    """The lines that a seal's `answers` is over; `ledger_saga_answers` has them in SQL."""
    found: dict[UUID, list[str]] = {}
    for row in storage.rows(_ANSWERS, [list(sagas)]):
        lines = found.setdefault(row.saga_id, [])
        result, error = _digest(row.result_text or ""), _digest(row.error or "")
        lines.append(
            f"step {row.id} {row.fingerprint} {row.idempotency_key} {row.state} {result} {error} "
            f"{row.tool} {row.step_id}"
        )
        lines += [f"claim {row.id} {_digest(key)}" for key in row.claims or ()]
    return found


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
