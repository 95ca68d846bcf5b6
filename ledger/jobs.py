"""What RQ calls. Nothing here decides anything."""

from __future__ import annotations

from uuid import UUID

from django.db import close_old_connections

from ledger import faultpoints
from ledger.shift import ShiftLoop


def shift(shift_id: str) -> int:
    """Work one shift; the number of calls made."""
    # The last shift's connection may have died with its server: the pool looks before it gives.
    close_old_connections()
    faultpoints.reached("P8")
    ran = ShiftLoop(UUID(shift_id)).run()
    faultpoints.reached("P15")
    return ran
