"""The rows behind shifts: who is alive, by leases in Postgres and never by asking RQ."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any
from uuid import UUID

from django.conf import settings

from ledger import storage
from ledger.models.fields import uuid7
from ledger.services.claiming_sql import TAKEABLE

# A shift says that it lives this often per lease, so that one missed beat does no harm.
BEATS_PER_LEASE = 4

BEGIN = """
INSERT INTO ledger_shift (id, rung_at, started_at, lease_until, worker, free, ran, ignored)
VALUES (%(id)s, clock_timestamp(), clock_timestamp(),
    clock_timestamp() + %(lease_s)s * interval '1 second', %(worker)s, %(free)s, 0, 0)
ON CONFLICT (id) DO UPDATE SET started_at = excluded.started_at,
    lease_until = excluded.lease_until, worker = excluded.worker, free = excluded.free
WHERE ledger_shift.started_at IS NULL
"""
BEAT = """
UPDATE ledger_shift SET lease_until = clock_timestamp() + %s * interval '1 second',
    free = %s, ran = %s
WHERE id = %s AND ended_at IS NULL
"""
RENEW = """
UPDATE ledger_attempt a SET lease_until = clock_timestamp() + r.lease_s * interval '1 second'
FROM json_to_recordset(%s::json) AS r(id uuid, token uuid, lease_s float8)
WHERE a.id = r.id AND a.token = r.token AND a.state = 'started'
"""
WAITING = f"""
SELECT count(*) AS rows, coalesce(extract(epoch FROM clock_timestamp() - min(w.due_at)), 0)::float8
    AS age_s
FROM (SELECT o.due_at FROM ledger_outboxmessage o WHERE {TAKEABLE}
    ORDER BY o.due_at, o.id LIMIT 100) AS w
"""  # noqa: S608 - the condition is ours
# The message that a claim of one would take; it waits longer each time it is refused.
SET_ASIDE = f"""
UPDATE ledger_outboxmessage SET parked_why = %s,
    due_at = clock_timestamp() + least(60, 1 + 2 * extract(epoch FROM
        clock_timestamp() - created_at)) * interval '1 second'
WHERE id = (
    SELECT o.id FROM ledger_outboxmessage o WHERE {TAKEABLE}
    ORDER BY o.due_at, o.id LIMIT 1 FOR UPDATE SKIP LOCKED
)
"""  # noqa: S608 - the condition is ours
LIVE = """
SELECT count(*) FILTER (WHERE started_at IS NOT NULL) AS alive,
    count(*) FILTER (WHERE started_at IS NULL) AS rung
FROM ledger_shift WHERE ended_at IS NULL AND lease_until > clock_timestamp()
"""


def ring_row() -> UUID:
    """Record that a shift is being rung for; it counts as coming until its grace is over."""
    shift = uuid7()
    storage.execute(
        "INSERT INTO ledger_shift (id, rung_at, lease_until, worker, free, ran, ignored) VALUES "
        "(%s, clock_timestamp(), clock_timestamp() + %s * interval '1 second', '', 0, 0, 0)",
        [shift, settings.SAGA_RING_GRACE_S],
    )
    return shift


def begin(shift: UUID, worker: str, free: int) -> bool:
    """Clock on; False, and counted, when it was worked already (RQ may deliver a job twice)."""
    values = {"id": shift, "lease_s": settings.SAGA_SHIFT_LEASE_S, "worker": worker, "free": free}
    if storage.execute(BEGIN, values) == 1:
        return True
    ignore(shift)
    return False


def ignore(shift: UUID) -> None:
    """Count what RQ says of a shift's job and nobody heeds: it delivered it again, or calls it
    failed (case H14). The operations page and `/metrics` show it."""
    storage.execute("UPDATE ledger_shift SET ignored = ignored + 1 WHERE id = %s", [shift])


def beat(shift: UUID, free: int, ran: int, held: Sequence[dict[str, Any]]) -> None:
    """Say that the shift lives, and renew the leases of the attempts it still works on."""
    storage.execute(BEAT, [settings.SAGA_SHIFT_LEASE_S, free, ran, shift])
    if held:
        storage.execute(RENEW, [json.dumps(held)])


def end(shift: UUID, ran: int) -> None:
    """Clock off."""
    storage.execute(
        "UPDATE ledger_shift SET ended_at = clock_timestamp(), free = 0, ran = %s "
        "WHERE id = %s AND ended_at IS NULL",
        [ran, shift],
    )


def waiting() -> Any:
    """What a shift could take now: `rows` (at most 100) and the age of the oldest, `age_s`."""
    return storage.the_row(WAITING)


def live() -> Any:
    """Shifts by their leases: `alive` at work, `rung` on their way."""
    return storage.the_row(LIVE)


def set_aside(why: str) -> None:
    """Put off the message at the head, which no claim could take; it shows `why`."""
    storage.execute(SET_ASIDE, [why[:2000]])
