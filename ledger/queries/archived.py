"""Archived sagas and steps as documents of the API, told from their tombstones.

They have one member more than others, `archived`: {"at", "export"}. What was not kept is null.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

from django.urls import reverse

from ledger.chain import stamp
from ledger.states import StepState
from ledger.storage import row, rows

Document = dict[str, Any]

_STEPS = """
SELECT s.id, s.saga_id, s.step_id, s.position, s.tool, s.tool_version, s.fingerprint,
    s.idempotency_key, s.tier, s.state, s.result_text, s.error, s.attempts, s.created_at,
    s.executed_at, s.finished_at, s.residue, t.at, t.export
FROM ledger_steptombstone s CROSS JOIN LATERAL (
    SELECT t.at, t.agent_id, x.name AS export FROM ledger_tombstone t
    JOIN ledger_export x ON x.id = t.export_id
    WHERE t.saga_id = s.saga_id ORDER BY t.seq DESC LIMIT 1
) t
WHERE {} AND (%(agent)s::uuid IS NULL OR t.agent_id = %(agent)s)
ORDER BY s.position
"""
_SAGA = """
SELECT t.saga_id AS id, t.task_id, t.name, a.name AS agent, t.state, t.opened_at, t.ended_at, t.at,
    t.actor, t.steps, t.sha256, t.hash, t.seq, x.name AS export, x.folder
FROM ledger_tombstone t
JOIN ledger_agent a ON a.id = t.agent_id JOIN ledger_export x ON x.id = t.export_id
WHERE t.saga_id = %(saga)s AND (%(agent)s::uuid IS NULL OR t.agent_id = %(agent)s)
ORDER BY t.seq DESC LIMIT 1
"""


# A task is one saga of an agent, so this is at most one row for each agent, by its own index.
_OF_TASK = """
SELECT DISTINCT ON (t.saga_id) t.saga_id AS id, t.task_id, t.name, a.name AS agent, t.state,
    t.opened_at, t.ended_at, t.at, x.name AS export
FROM ledger_agent a
JOIN ledger_tombstone t ON t.agent_id = a.id AND t.task_id = %(task_id)s
JOIN ledger_export x ON x.id = t.export_id
WHERE (%(agent_id)s::uuid IS NULL OR a.id = %(agent_id)s)
    AND (%(agent)s = '' OR a.name = %(agent)s)
    AND (%(state)s = '' OR t.state = %(state)s)
    AND (%(after)s::uuid IS NULL OR t.saga_id < %(after)s)
    AND NOT EXISTS (SELECT 1 FROM ledger_saga g WHERE g.id = t.saga_id)
ORDER BY t.saga_id DESC, t.seq DESC LIMIT %(limit)s
"""


def tombstone(saga_id: UUID, agent_id: UUID | None = None) -> Any | None:
    """The newest tombstone of a saga, whether the saga came back since or not."""
    return row(_SAGA, {"saga": saga_id, "agent": agent_id})


def step_tombstones(saga_id: UUID) -> list[Any]:
    """The steps of an archived saga, in their order."""
    return rows(_STEPS.format("s.saga_id = %(saga)s"), {"saga": saga_id, "agent": None})


_FIND = """
SELECT DISTINCT ON (t.saga_id) t.saga_id AS id, t.task_id, t.name, a.name AS agent, t.state, t.at,
    t.steps, x.name AS export,
    EXISTS (
        SELECT 1 FROM ledger_steptombstone s WHERE s.saga_id = t.saga_id AND s.residue
    ) AS residue
FROM ledger_tombstone t
JOIN ledger_agent a ON a.id = t.agent_id JOIN ledger_export x ON x.id = t.export_id
WHERE (t.saga_id::text = %(text)s OR t.task_id = %(text)s)
    AND NOT EXISTS (SELECT 1 FROM ledger_saga g WHERE g.id = t.saga_id)
ORDER BY t.saga_id, t.seq DESC LIMIT 20
"""
# Whatever was said before the saga left the last time is in its chain.
_LATE = """
SELECT w.saga_id, w.attempt_id, w.direction, w.evidence, w.at, s.step_id, s.position, s.state,
    t.name, t.agent
FROM ledger_lateword w JOIN ledger_steptombstone s ON s.id = w.step_id
CROSS JOIN LATERAL (
    SELECT t.name, t.at, a.name AS agent FROM ledger_tombstone t
    JOIN ledger_agent a ON a.id = t.agent_id
    WHERE t.saga_id = w.saga_id ORDER BY t.seq DESC LIMIT 1
) t
WHERE {} AND w.at > t.at AND NOT EXISTS (SELECT 1 FROM ledger_saga g WHERE g.id = w.saga_id)
ORDER BY w.at LIMIT %(limit)s
"""
_EXPORTS = """
SELECT x.id, x.name, x.folder, x.sha256, x.size, x.sagas, x.entries, x.made_by, x.made_at,
    x.finished_at
FROM ledger_export x ORDER BY x.id DESC LIMIT 50
"""
_FIRSTS = """
SELECT s.id, s.saga_id, s.step_id, s.position, s.state, t.name, t.agent FROM ledger_steptombstone s
CROSS JOIN LATERAL (
    SELECT t.name, a.name AS agent FROM ledger_tombstone t JOIN ledger_agent a ON a.id = t.agent_id
    WHERE t.saga_id = s.saga_id ORDER BY t.seq DESC LIMIT 1
) t WHERE s.id = ANY(%s)
"""


def find(text: str) -> list[Any]:
    """Archived sagas with exactly this id or task id."""
    return rows(_FIND, {"text": text.lower() if len(text) == 36 else text})


def late_words(saga_id: UUID) -> list[Any]:
    """What attempts of an archived saga said after it had left, in the order of its steps."""
    return rows(_LATE.format("w.saga_id = %(saga)s"), {"saga": saga_id, "limit": 1000})


def unheard_words(limit: int) -> list[Any]:
    """Late words of "done" that no ledger has heard, because their sagas have not come back."""
    unheard = "w.evidence ->> 'outcome' = 'done'"
    return rows(_LATE.format(unheard), {"limit": limit})


def exports() -> list[Any]:
    """The newest exports."""
    return rows(_EXPORTS)


def first_steps(step_ids: Sequence[UUID]) -> Mapping[UUID, Any]:
    """Archived steps that answer for steps of other sagas, with the names of their sagas."""
    return {found.id: found for found in rows(_FIRSTS, [list(step_ids)])}


def step(step_id: UUID, agent_id: UUID | None) -> Document | None:
    """An archived step, or None."""
    values = {"step": step_id, "agent": agent_id}
    found = rows(_STEPS.format("s.id = %(step)s"), values)
    return _step(found[0]) if found else None


def saga(saga_id: UUID, absolute: Callable[[str], str], agent_id: UUID | None) -> Document | None:
    """An archived saga with its steps, or None."""
    found = tombstone(saga_id, agent_id)
    return None if found is None else _saga(found, step_tombstones(saga_id), absolute)


def sagas_of_task(
    task_id: str,
    absolute: Callable[[str], str],
    *,
    limit: int,
    after: UUID | None,
    agent_id: UUID | None,
    agent: str,
    state: str,
) -> list[Document]:
    """The archived sagas of a task, newest first; the wishes are those of `listing.list_sagas`."""
    wishes = {"task_id": task_id, "agent_id": agent_id, "agent": agent, "state": state}
    found = rows(_OF_TASK, wishes | {"after": after, "limit": limit})
    return [_saga(one, step_tombstones(one.id), absolute) for one in found]


def _saga(found: Any, steps: list[Any], absolute: Callable[[str], str]) -> Document:
    return {
        "id": str(found.id),
        "task_id": found.task_id,
        "name": found.name,
        "agent": found.agent,
        "state": found.state,
        "metadata": None,
        "steps": [_step(one) for one in steps],
        "residue": [_residue(one) for one in steps if one.residue],
        "created_at": _stamp(found.opened_at),
        "updated_at": _stamp(found.ended_at),
        "url": absolute(reverse("ledger:saga-detail", args=[found.id])),
        "archived": _archived(found),
    }


def _archived(found: Any) -> Document:
    return {"at": _stamp(found.at), "export": found.export}


def _step(found: Any) -> Document:
    return {
        "id": str(found.id),
        "saga_id": str(found.saga_id),
        "step_id": found.step_id,
        "position": found.position,
        "tool": found.tool,
        "tool_version": found.tool_version,
        "args": None,
        "args_digest": found.fingerprint,
        "idempotency_key": found.idempotency_key,
        "tier": found.tier,
        "state": found.state,
        "result": None if found.result_text is None else json.loads(found.result_text),
        "error": found.error,
        "reason": "",
        "approval": None,
        "effect_of": None,
        "attempts": found.attempts,
        "created_at": _stamp(found.created_at),
        "finished_at": _stamp(found.finished_at),
        "archived": _archived(found),
    }


_WHY = {
    True: "Nobody knew whether it happened when the saga ended; the export says more.",
    False: "It was left when the saga ended; the export says why.",
}


def _residue(found: Any) -> Document:
    return {
        "step_id": found.step_id,
        "tool": found.tool,
        "idempotency_key": found.idempotency_key,
        "since": _stamp(found.executed_at),
        "why": _WHY[found.state == StepState.UNKNOWN],
    }


def _stamp(at: datetime | None) -> str | None:
    return None if at is None else stamp(at)
