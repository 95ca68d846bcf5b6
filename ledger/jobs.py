"""What RQ calls. Nothing here decides anything."""

from __future__ import annotations

from uuid import UUID

from ledger.shift import ShiftLoop


def shift(shift_id: str) -> int:
    """Work one shift; the number of calls made."""
    return ShiftLoop(UUID(shift_id)).run()
