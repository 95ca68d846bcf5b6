"""The lock under which a request changes: its saga's row, before anything else.

The ledger locks in the same order, so a claim and a decision never wait in a circle.
"""

from __future__ import annotations

from uuid import UUID

from ledger import storage

_LOCK = """
SELECT g.id FROM approvals_approval a JOIN ledger_saga g ON g.id = a.saga_id
WHERE a.id = %s FOR UPDATE OF g
"""


def lock_saga_of(request: UUID, *, or_leave_it: bool = False) -> bool:
    """Lock the saga until the transaction ends.

    False when there is no such request or, with `or_leave_it`, when somebody else holds it.
    """
    return storage.row(_LOCK + (" SKIP LOCKED" if or_leave_it else ""), [request]) is not None
