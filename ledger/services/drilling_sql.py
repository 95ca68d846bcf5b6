"""The statements of drills. Every value in them is our own; who asks comes as a parameter."""

from __future__ import annotations

from ledger.legs import TAKEN_WITHIN_S, DrillState, Leg

FROZEN = """EXISTS (
    SELECT 1 FROM ledger_freeze f
    WHERE f.lifted_at IS NULL AND (f.expires_at IS NULL OR f.expires_at > clock_timestamp())
        AND (f.scope = 'all' OR (f.scope = 'tool' AND f.value = d.tool)))
"""
_WAITING = f"""
FROM ledger_drill d
WHERE d.asked_at > clock_timestamp() - {TAKEN_WITHIN_S} * interval '1 second'
    AND NOT EXISTS (SELECT 1 FROM ledger_drillleg l WHERE l.drill_id = d.id)
"""
WAITS = f"SELECT EXISTS (SELECT 1 {_WAITING} AND NOT {FROZEN}) AS waits"
IS_FROZEN = f"SELECT 1 FROM (SELECT %s::text AS tool) d WHERE {FROZEN}"
BEGIN = f"""
INSERT INTO ledger_drillleg (drill_id, leg, ok, outcome, said, took_ms, shift_id, at)
SELECT d.id, '{Leg.START}', true, 'taken', '', 0, %s, clock_timestamp()
{_WAITING} AND NOT {FROZEN}
ORDER BY d.asked_at, d.id LIMIT 1 FOR UPDATE OF d SKIP LOCKED
RETURNING drill_id
"""
TELL = """
INSERT INTO ledger_drillleg (drill_id, leg, ok, outcome, said, took_ms, shift_id, at)
VALUES (%s, %s, %s, %s, %s, %s, %s, clock_timestamp())
"""
# A shift that lives renews its lease; one that does not will never tell how its drill ended.
GIVE_UP = f"""
INSERT INTO ledger_drillleg (drill_id, leg, ok, outcome, said, took_ms, shift_id, at)
SELECT b.drill_id, '{Leg.END}', false, '{DrillState.INTERRUPTED}', %s, 0, b.shift_id,
    clock_timestamp()
FROM ledger_drillleg b JOIN ledger_drill d ON d.id = b.drill_id
LEFT JOIN ledger_shift s ON s.id = b.shift_id
WHERE b.leg = '{Leg.START}' AND d.asked_at > clock_timestamp() - interval '1 day'
    AND NOT EXISTS (SELECT 1 FROM ledger_drillleg e
        WHERE e.drill_id = b.drill_id AND e.leg = '{Leg.END}')
    AND (s.id IS NULL OR s.ended_at IS NOT NULL OR s.lease_until < clock_timestamp())
"""
# One at a time for each tool: two would find each other's effects.
BUSY = f"""
SELECT d.id FROM ledger_drill d
LEFT JOIN ledger_drillleg b ON b.drill_id = d.id AND b.leg = '{Leg.START}'
WHERE d.tool = %s AND d.asked_at > clock_timestamp() - interval '1 day'
    AND (b.id IS NOT NULL
        OR d.asked_at > clock_timestamp() - {TAKEN_WITHIN_S} * interval '1 second')
    AND NOT EXISTS (SELECT 1 FROM ledger_drillleg e
        WHERE e.drill_id = d.id AND e.leg = '{Leg.END}')
LIMIT 1
"""
