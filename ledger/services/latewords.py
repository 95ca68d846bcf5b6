"""Answers that come when their saga has left: kept below its tombstone, heard if it comes back."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from ledger import keys, storage
from ledger.models.fields import uuid7
from ledger.outcomes import Outcome, Sighting
from ledger.services.assignments import Assignment
from ledger.services.attempts import told
from ledger.services.evidence import hear
from ledger.services.unit import Unit
from ledger.states import Direction

_KEEP = """
INSERT INTO ledger_lateword (id, saga_id, step_id, attempt_id, direction, evidence, at)
SELECT %(id)s, s.saga_id, s.id, %(attempt)s, %(direction)s, %(evidence)s::jsonb, clock_timestamp()
FROM ledger_steptombstone s WHERE s.id = %(step)s
ON CONFLICT (attempt_id) DO NOTHING
"""
_OF_SAGA = """
SELECT w.step_id, w.direction, w.evidence::text AS evidence, a.id, a.fence, a.idempotency_key
FROM ledger_lateword w JOIN ledger_attempt a ON a.id = w.attempt_id
WHERE w.saga_id = %s ORDER BY w.at
"""


def keep_word(assignment: Assignment, outcome: Outcome | Sighting) -> None:
    """Keep what an attempt of an archived saga says. What a look saw there says nothing new."""
    if assignment.attempt is None:
        return
    values: dict[str, Any] = {
        "id": uuid7(),
        "step": assignment.step,
        "attempt": assignment.attempt,
        "direction": assignment.direction,
        "evidence": keys.storable(told(outcome))[0],  # type: ignore[arg-type]  # of an attempt
    }
    storage.execute(_KEEP, values)


def hear_words(saga_id: UUID, *, actor: str) -> None:
    """A saga that came back hears what was said meanwhile; what it has heard says nothing new."""
    words = storage.rows(_OF_SAGA, [saga_id])
    unit = Unit(actor)
    unit.lock_with_steps([word.step_id for word in words])
    for word in words:
        hear(unit, unit.steps[word.step_id], Direction(word.direction), word, word.evidence)
        unit.flush()
