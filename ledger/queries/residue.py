"""What sagas have left in the world, or may have: each effect with what is known of it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from ledger.states import STEP_WITHOUT_EFFECT, StepState, Tier
from ledger.storage import rows

_LEFT = """
SELECT s.saga_id, s.step_id, s.tool, s.idempotency_key, s.executed_at AS since,
    CASE s.alternative WHEN 0 THEN s.tier
        ELSE s.alternatives -> (s.alternative - 1) ->> 'tier' END AS tier,
    s.state, s.result_text, EXISTS (
        SELECT 1 FROM ledger_attempt t
        WHERE t.step_id = s.id AND t.direction <> 'forward' AND t.state = 'unknown'
    ) AS may_be_undone
FROM ledger_step s WHERE s.saga_id = ANY(%s) AND s.residue ORDER BY s.saga_id, s.executed_seq
"""
_WHY = {
    Tier.COMPENSATABLE: "Undoing it was given up: a person refused or skipped it, or nobody "
    "said yes in time.",
    Tier.PIVOT: "It is a commitment point: nothing undoes it.",
    Tier.NON_COMPENSATABLE: "It cannot be undone.",
}


@dataclass(frozen=True, slots=True)
class Left:
    """An effect that stays; `is_doubtful` when nobody knows whether it is there."""

    saga_id: UUID
    step_id: str
    tool: str
    idempotency_key: str
    since: datetime | None
    tier: str
    state: str
    result_text: str | None
    may_be_undone: bool

    @property
    def is_doubtful(self) -> bool:
        return self.state == StepState.UNKNOWN or self.may_be_undone

    @property
    def why(self) -> str:
        """One or two sentences for whoever must deal with it."""
        if self.state == StepState.UNKNOWN:
            return "Nobody knows whether it happened."
        if self.may_be_undone:
            return "It happened, and nobody knows whether it was undone."
        if self.state in STEP_WITHOUT_EFFECT:
            return "It was settled that it had not happened, and there is word that it did."
        corrected = " A correction was sent." if self.state == StepState.CORRECTED else ""
        return _WHY[Tier(self.tier)] + corrected


def left_by(sagas: Iterable[UUID]) -> Sequence[Left]:
    """Of these sagas, oldest effect first; where that is not known, last."""
    return [Left(*row) for row in rows(_LEFT, [list(sagas)])]
