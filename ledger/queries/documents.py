"""Sagas, steps, entries and freezes as the documents of the API (docs/agents.md has the fields).

A step is one read of one row by its key: this is on the path of every submit, so it is SQL
and not the ORM (0.15 ms against 0.6 ms).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from functools import cache
from typing import Any
from uuid import UUID

import psycopg
from django.urls import reverse

from ledger.gate import gate
from ledger.queries import archived
from ledger.queries.residue import left_by
from ledger.states import SAGA_ENDED, STEP_FINISHED, SagaState, StepState
from ledger.storage import rows, rows_on, the_row

Document = dict[str, Any]
# Makes the address of a page absolute: ledger/api/addresses.py.
Absolute = Callable[[str], str]

_STEP = """
SELECT s.id, s.saga_id, s.step_id, s.position, s.tool, s.tool_version_id, s.args_text,
    s.fingerprint, s.idempotency_key, s.tier, s.state, s.result_text, s.error, s.reason, s.attempts,
    s.created_at, s.finished_at, s.verdict, s.held_why, g.state AS saga_state
FROM ledger_step s JOIN ledger_saga g ON g.id = s.saga_id
"""
# Each by its key, whatever the planner takes the tables for: it plans once, on empty ones.
_STEPS_TOGETHER = f"""
SELECT r.* FROM unnest(%s::uuid[]) AS k (id)
CROSS JOIN LATERAL ({_STEP} WHERE s.id = k.id LIMIT 1) AS r
"""  # noqa: S608 - the columns are ours
_SAGA = """
SELECT g.id, g.task_id, g.name, a.name AS agent, g.state, g.metadata, g.created_at, g.updated_at
FROM ledger_saga g JOIN ledger_agent a ON a.id = g.agent_id
"""
_NEVER_ASKED_IN = frozenset(
    {
        StepState.WAITING,
        StepState.QUEUED,
        StepState.EXECUTING,
        StepState.UNKNOWN,
        StepState.COMMITTED,
        StepState.FAILED,
    }
)
_GOING_FORWARD = frozenset({SagaState.RUNNING, SagaState.COMPLETED})


def stamp(at: datetime | None) -> str | None:
    """RFC 3339 in UTC with microseconds, as the ledger's hashes have it."""
    if at is None:
        return None
    return at.astimezone(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")


def step(
    step_id: UUID,
    *,
    absolute: Absolute,
    agent_id: UUID | None = None,
    effect_of: UUID | None = None,
    row: Any = None,
) -> Document | None:
    """One step, archived or not; None when there is none, or none of `agent_id` when given.

    `row`: the step's own, where it has been read already (`rows_together`).
    """
    found = (
        [row]
        if row is not None
        else rows(
            _STEP + "WHERE s.id = %s AND (%s::uuid IS NULL OR g.agent_id = %s)",
            [step_id, agent_id, agent_id],
        )
    )
    document = _steps(found, absolute)[0] if found else archived.step(step_id, agent_id)
    if document is None:
        return None
    if effect_of is not None:
        document["effect_of"] = str(effect_of)
    return document


def rows_together(ears: psycopg.Connection[Any], steps: Sequence[str]) -> dict[str, Any]:
    """The rows of steps for `step`, by their ids; a `Reader` (ledger/wake.py)."""
    found = rows_on(ears, _STEPS_TOGETHER, [list(steps)])
    return {str(row.id): row for row in found}


def has_settled(document: Document) -> bool:
    """Whether waiting longer for this step is pointless: at an end, or stuck."""
    return is_finished(document) or document["state"] == StepState.STUCK


def is_finished(document: Document) -> bool:
    return document["state"] in STEP_FINISHED


def steps_of(sagas: Iterable[UUID], absolute: Absolute) -> list[Document]:
    """The steps of these sagas, in the order of their positions."""
    where = "WHERE s.saga_id = ANY(%s) ORDER BY s.saga_id, s.position"
    return _steps(rows(_STEP + where, [list(sagas)]), absolute)


def _steps(found: list[Any], absolute: Absolute) -> list[Document]:
    asked = [row.id for row in found if _may_have_been_asked(row)]
    requests = gate().requests(asked) if asked else {}
    return [_step(row, _approval(requests.get(row.id), absolute)) for row in found]


def _may_have_been_asked(row: Any) -> bool:
    # Spares the hot path a query. A step that was allowed, and whose saga never turned back,
    # was never put to a person.
    return not (
        row.verdict == "allow"
        and not row.held_why
        and row.state in _NEVER_ASKED_IN
        and row.saga_state in _GOING_FORWARD
    )


@cache
def _version_of(digest: str) -> str:
    """The version of a tool that a digest stands for. Its row never changes (ledger/walls.py)."""
    found: str = the_row("SELECT version FROM ledger_toolversion WHERE digest = %s", [digest])[0]
    return found


def _approval(request: Mapping[str, Any] | None, absolute: Absolute) -> Document | None:
    if request is None:
        return None
    return {
        "id": str(request["id"]),
        "state": request["state"],
        "url": absolute(request["url"]),
    }


def _step(row: Any, approval: Document | None) -> Document:
    return {
        "id": str(row.id),
        "saga_id": str(row.saga_id),
        "step_id": row.step_id,
        "position": row.position,
        "tool": row.tool,
        "tool_version": _version_of(row.tool_version_id),
        "args": json.loads(row.args_text),
        "args_digest": row.fingerprint,
        "idempotency_key": row.idempotency_key,
        "tier": row.tier,
        "state": row.state,
        "result": None if row.result_text is None else json.loads(row.result_text),
        "error": _json(row.error),
        "reason": row.reason,
        "approval": approval,
        "effect_of": None,
        "attempts": row.attempts,
        "created_at": stamp(row.created_at),
        "finished_at": stamp(row.finished_at),
    }


def _json(value: Any) -> Any:
    # Django's connections leave jsonb as text; None is SQL's.
    return json.loads(value) if isinstance(value, str) else value


def saga(saga_id: UUID, *, absolute: Absolute, agent_id: UUID | None = None) -> Document | None:
    """One saga with its steps, archived or not; None when there is none, or none of `agent_id`."""
    found = sagas(
        "WHERE g.id = %s AND (%s::uuid IS NULL OR g.agent_id = %s)",
        [saga_id, agent_id, agent_id],
        absolute,
    )
    return found[0] if found else archived.saga(saga_id, absolute, agent_id)


def sagas(where: str, values: Sequence[Any], absolute: Absolute) -> list[Document]:
    """The sagas that `where` (SQL over g and a) selects, each with its steps."""
    found = rows(_SAGA + where, values)
    if not found:
        return []
    ids = [row.id for row in found]
    steps: dict[str, list[Document]] = {str(saga_id): [] for saga_id in ids}
    for document in steps_of(ids, absolute):
        steps[document["saga_id"]].append(document)
    ended_backward = [row.id for row in found if row.state == SagaState.COMPENSATED]
    left = residue(ended_backward) if ended_backward else {}
    return [_saga(row, steps[str(row.id)], left.get(row.id, []), absolute) for row in found]


def _saga(row: Any, steps: list[Document], left: list[Document], absolute: Absolute) -> Document:
    return {
        "id": str(row.id),
        "task_id": row.task_id,
        "name": row.name,
        "agent": row.agent,
        "state": row.state,
        "metadata": _json(row.metadata),
        "steps": steps,
        "residue": left,
        "created_at": stamp(row.created_at),
        "updated_at": stamp(row.updated_at),
        "url": absolute(reverse("ledger:saga-detail", args=[row.id])),
    }


def residue(ended: Sequence[UUID]) -> dict[UUID, list[Document]]:
    """What sagas that ended backwards left in the world, oldest effect first."""
    left: dict[UUID, list[Document]] = {}
    for one in left_by(ended):
        left.setdefault(one.saga_id, []).append(
            {
                "step_id": one.step_id,
                "tool": one.tool,
                "idempotency_key": one.idempotency_key,
                "since": stamp(one.since),
                "why": one.why,
            }
        )
    return left


def has_ended(document: Document) -> bool:
    """Whether the saga takes no more steps and undoes no more."""
    return document["state"] in SAGA_ENDED


_UNFINISHED = "SELECT 1 AS found FROM ledger_step WHERE saga_id = %s AND state <> ALL(%s) LIMIT 1"
_SETTLED = [*sorted(STEP_FINISHED), StepState.STUCK.value]


def steps_have_settled(saga_id: UUID) -> bool:
    """Whether every step of the saga is at an end or stuck."""
    return not rows(_UNFINISHED, [saga_id, _SETTLED])
