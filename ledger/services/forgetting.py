"""What people were told leaves some time after its saga, and what counts no more with it.

Only what stays nobody's answer: messages that came to their end, about sagas that are below a
tombstone. The walls refuse every other DELETE, whoever asks (ledger/messagewalls.py).
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

from ledger import storage
from ledger.gate import gate

# A transaction each: few enough that nobody waits for one, many enough that a night's are quick.
BATCH = 1_000

_SAGA_IS_GONE = "NOT EXISTS (SELECT FROM ledger_saga g WHERE g.id = n.saga_id)"
MESSAGES = f"""
DELETE FROM ledger_message WHERE id IN (
    SELECT m.id FROM ledger_message m JOIN ledger_notice n ON n.id = m.notice_id
    WHERE m.state <> 'waiting' AND {_SAGA_IS_GONE}
        AND m.created_at < clock_timestamp() - %s::interval
    ORDER BY m.id LIMIT %s)
"""  # noqa: S608 - the condition is ours
NOTICES = f"""
DELETE FROM ledger_notice WHERE id IN (
    SELECT n.id FROM ledger_notice n
    WHERE n.spread_at IS NOT NULL AND {_SAGA_IS_GONE} AND n.at < clock_timestamp() - %s::interval
        AND NOT EXISTS (SELECT FROM ledger_message m WHERE m.notice_id = n.id)
    ORDER BY n.id LIMIT %s)
"""  # noqa: S608 - the condition is ours


@dataclass(frozen=True, slots=True)
class Forgotten:
    """How many rows are gone."""

    messages: int = 0
    notices: int = 0
    of_gate: int = 0

    @property
    def total(self) -> int:
        return self.messages + self.notices + self.of_gate


def forget(older_than: timedelta) -> Forgotten:
    """Delete what is older than this and belongs to nothing that is still here."""
    return Forgotten(
        _all_of(MESSAGES, older_than), _all_of(NOTICES, older_than), gate().forget(older_than)
    )


def _all_of(statement: str, older_than: timedelta) -> int:
    gone = 0
    while count := storage.execute(statement, [older_than, BATCH]):
        gone += count
    return gone
