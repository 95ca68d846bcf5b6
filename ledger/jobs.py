"""What RQ calls. Nothing here decides anything."""

from __future__ import annotations

import logging
from typing import Any
from uuid import UUID

from django.db import close_old_connections

from ledger import faultpoints
from ledger.services import shifts
from ledger.shift import ShiftLoop

logger = logging.getLogger(__name__)


def shift(shift_id: str) -> int:
    """Work one shift; the number of calls made."""
    # The last shift's connection may have died with its server: the pool looks before it gives.
    close_old_connections()
    faultpoints.reached("P8")
    ran = ShiftLoop(UUID(shift_id)).run()
    faultpoints.reached("P15")
    return ran


def failed(job: Any, *_: Any) -> None:
    """RQ calls a shift's job failed, maybe long after its end: counted, and heeded by nobody.

    What a dead shift left behind is found by its leases in Postgres (design rule 5.3).
    """
    try:
        close_old_connections()
        shifts.ignore(UUID(job.args[0]))
    except Exception:
        # Whatever it is (arguments that are no shift's, a database that is away): RQ would write
        # this error over the one that it has to tell.
        logger.exception("the failure of job %s was not counted", job.id)
