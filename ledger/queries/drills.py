"""What is known of a tool's undo: when it last worked for real, and what its drills came to."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from ledger.legs import TAKEN_WITHIN_S, DrillState, Leg
from ledger.storage import row, rows

_COLUMNS = f"""
d.id, d.tool, d.version, d.digest, d.undo, d.args_text, d.sandbox, d.reason, d.asked_by,
d.asked_at, b.at AS started_at, e.at AS ended_at, coalesce(e.said, '') AS said,
CASE
    WHEN e.id IS NOT NULL THEN e.outcome
    WHEN b.id IS NULL AND d.asked_at > clock_timestamp() - {TAKEN_WITHIN_S} * interval '1 second'
        THEN '{DrillState.WAITING}'
    WHEN b.id IS NULL THEN '{DrillState.EXPIRED}'
    WHEN s.ended_at IS NULL AND s.lease_until > clock_timestamp() THEN '{DrillState.RUNNING}'
    ELSE '{DrillState.INTERRUPTED}'
END AS state
"""
# What is neither ended nor alive is interrupted at once, whether a sweep has said so or not.
_FACTS = f"""
LEFT JOIN ledger_drillleg b ON b.drill_id = d.id AND b.leg = '{Leg.START}'
LEFT JOIN ledger_drillleg e ON e.drill_id = d.id AND e.leg = '{Leg.END}'
LEFT JOIN ledger_shift s ON s.id = b.shift_id
"""
_LATEST = f"""
SELECT {_COLUMNS}
FROM unnest(%s::text[]) AS k(key)
JOIN LATERAL (
    SELECT * FROM ledger_drill WHERE tool = k.key ORDER BY id DESC LIMIT %s
) d ON true
{_FACTS}
ORDER BY d.id DESC
"""
_ONE = f"SELECT {_COLUMNS} FROM ledger_drill d {_FACTS} WHERE d.id = %s"
_LEGS = """
SELECT drill_id, leg, ok, outcome, said, took_ms, at FROM ledger_drillleg
WHERE drill_id = ANY(%s) AND leg NOT IN ('start', 'end') ORDER BY id
"""
# Two looks at an index for each tool, first choices and others; a step that was undone without an
# attempt (an operator's word) tells nothing about the undo.
_REAL = """
SELECT k.key AS tool, s.saga_id, s.step_id, g.name AS saga,
    coalesce(a.ended_at, s.finished_at) AS at
FROM unnest(%s::text[]) AS k(key)
JOIN LATERAL (
    (SELECT t.* FROM ledger_step t
    WHERE t.tool = k.key AND t.state IN ('compensated', 'corrected') AND t.alternative = 0
        AND EXISTS (SELECT 1 FROM ledger_attempt u
            WHERE u.step_id = t.id AND u.direction <> 'forward')
    ORDER BY t.finished_at DESC LIMIT 1)
    UNION ALL
    (SELECT t.* FROM ledger_step t
    WHERE (t.alternatives -> (t.alternative - 1)) ->> 'tool' = k.key
        AND t.state IN ('compensated', 'corrected') AND t.alternative > 0
        AND EXISTS (SELECT 1 FROM ledger_attempt u
            WHERE u.step_id = t.id AND u.direction <> 'forward')
    ORDER BY t.finished_at DESC LIMIT 1)
    ORDER BY finished_at DESC LIMIT 1
) s ON true
JOIN ledger_saga g ON g.id = s.saga_id
JOIN LATERAL (
    SELECT ended_at FROM ledger_attempt u
    WHERE u.step_id = s.id AND u.direction <> 'forward' ORDER BY u.fence DESC LIMIT 1
) a ON true
"""


@dataclass(frozen=True, slots=True)
class DrillFacts:
    """One drill as people see it. `legs` are those between start and end, in their order."""

    id: UUID
    tool: str
    version: str
    digest: str
    undo: str
    args_text: str
    sandbox: str
    reason: str
    asked_by: str
    asked_at: datetime
    started_at: datetime | None
    ended_at: datetime | None
    said: str
    state: DrillState
    legs: Sequence[Any] = ()

    @property
    def is_over(self) -> bool:
        return self.state not in (DrillState.WAITING, DrillState.RUNNING)

    @property
    def at(self) -> datetime:
        """When it came to what it is now."""
        return self.ended_at or self.started_at or self.asked_at


@dataclass(frozen=True, slots=True)
class RealUndo:
    """The last time that an undo of a tool worked in a saga."""

    saga_id: UUID
    saga: str
    step_id: str
    at: datetime


def latest(keys: Iterable[str]) -> Mapping[str, DrillFacts]:
    """The newest drill of each tool that ever had one, without its legs."""
    return {found.tool: _facts(found, ()) for found in rows(_LATEST, [list(keys), 1])}


def history(key: str, limit: int = 10) -> list[DrillFacts]:
    """The newest drills of one tool with their legs, newest first."""
    return _with_legs(rows(_LATEST, [[key], limit]))


def one(drill: UUID) -> DrillFacts | None:
    """A drill with its legs."""
    found = row(_ONE, [drill])
    return None if found is None else _with_legs([found])[0]


def last_real_undos(keys: Iterable[str]) -> Mapping[str, RealUndo]:
    """From the ledger: the last undo of each tool that worked in a saga."""
    return {
        found.tool: RealUndo(found.saga_id, found.saga, found.step_id, found.at)
        for found in rows(_REAL, [list(keys)])
    }


def _with_legs(drills: Sequence[Any]) -> list[DrillFacts]:
    legs: dict[UUID, list[Any]] = {}
    for leg in rows(_LEGS, [[drill.id for drill in drills]]):
        legs.setdefault(leg.drill_id, []).append(leg)
    return [_facts(drill, legs.get(drill.id, ())) for drill in drills]


def _facts(found: Any, legs: Sequence[Any]) -> DrillFacts:
    told = found._asdict()  # a named tuple's own way of being read by name
    return DrillFacts(**{**told, "state": DrillState(found.state)}, legs=legs)
