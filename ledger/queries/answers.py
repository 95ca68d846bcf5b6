"""What operators have answered for a step, and what is recorded about it: read from its entries."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from ledger import storage

_COLUMNS = "seq, kind, actor, at, payload, state"
# The condition of `ledger_entry_one_answer`, word for word: the index serves this read too.
_ANSWERS = f"""
SELECT {_COLUMNS} FROM ledger_entry
WHERE saga_id = %s AND step_id = %s AND kind::text LIKE 'operator.%%'
ORDER BY seq DESC
"""  # noqa: S608 - the columns are ours
_LAST_STATE = f"""
SELECT {_COLUMNS} FROM ledger_entry
WHERE saga_id = %s AND step_id = %s AND state <> '' ORDER BY seq DESC LIMIT 1
"""  # noqa: S608


@dataclass(frozen=True, slots=True)
class Told:
    """One entry about a step, as far as an operator is concerned."""

    seq: int
    kind: str
    actor: str
    at: datetime
    payload: dict[str, Any]
    state: str

    @property
    def question(self) -> str:
        """Which question it answered; '' for what closes none."""
        return str(self.payload.get("question") or "")

    @property
    def answer(self) -> str:
        return str(self.payload.get("answer", ""))

    def document(self) -> dict[str, Any]:
        """For a refusal: who answered what, when and why, and where it is written."""
        return {
            "answer": self.answer or None,
            "by": self.actor,
            "at": self.at.isoformat().replace("+00:00", "Z"),
            "reason": self.payload.get("reason", ""),
            "entry": self.seq,
            "kind": self.kind,
        }


def answers_of(saga_id: UUID, step_id: str) -> list[Told]:
    """What operators said about a step, the newest first."""
    return [_told(row) for row in storage.rows(_ANSWERS, [saga_id, step_id])]


def last_state(saga_id: UUID, step_id: str) -> Told:
    """The entry that told of the step's present state."""
    return _told(storage.the_row(_LAST_STATE, [saga_id, step_id]))


def _told(row: Any) -> Told:
    return Told(row.seq, row.kind, row.actor, row.at, json.loads(row.payload), row.state)
