"""Anchoring: the ends of all chains that moved, under one root chained to the last.

A chain alone cannot tell that its tail, or the whole saga, was cut off; an anchor can.
"""

from __future__ import annotations

import json

from ledger import storage
from ledger.chain import FIRST, checkpoint_root

# Entries get their time before their commit; an entry committed this much later than its
# time is still found by the next anchor. Longer than any transaction may live.
OVERLAP = "5 minutes"
# One anchor at a time; the number is only this lock's name.
LOCK = 7_240_001

# A saga that was archived moved once more: its seal is anchored as its last entry would be.
MOVED = f"""
SELECT g.id, g.head_seq, g.head_hash FROM ledger_saga g
WHERE g.id IN (
    SELECT DISTINCT e.saga_id FROM ledger_entry e
    WHERE e.at >= %s::timestamptz - interval '{OVERLAP}'
) AND NOT EXISTS (
    SELECT 1 FROM ledger_checkpointhead h WHERE h.saga_id = g.id AND h.seq = g.head_seq
)
UNION ALL
SELECT t.saga_id, t.seq, t.hash FROM ledger_tombstone t
WHERE t.at >= %s::timestamptz - interval '{OVERLAP}' AND NOT EXISTS (
    SELECT 1 FROM ledger_checkpointhead h WHERE h.saga_id = t.saga_id AND h.seq = t.seq
) AND NOT EXISTS (SELECT 1 FROM ledger_saga g WHERE g.id = t.saga_id)
ORDER BY 1
"""  # noqa: S608 - a constant


@storage.transition
def anchor() -> int:
    """Write a checkpoint if any chain has moved; the number of heads that it anchors."""
    if not storage.the_row("SELECT pg_try_advisory_xact_lock(%s) AS mine", [LOCK]).mine:
        return 0
    now = storage.the_row("SELECT clock_timestamp() AS now").now
    last = storage.row("SELECT covers_until, root FROM ledger_checkpoint ORDER BY id DESC LIMIT 1")
    since = last.covers_until if last else "-infinity"
    heads = storage.rows(MOVED, [since, since])
    if not heads:
        return 0
    prev_root = last.root if last else FIRST
    root = checkpoint_root(prev_root, [(str(h.id), h.head_seq, h.head_hash) for h in heads])
    made = storage.the_row(
        "INSERT INTO ledger_checkpoint (at, covers_until, heads, prev_root, root) "
        "VALUES (clock_timestamp(), %s, %s, %s, %s) RETURNING id",
        [now, len(heads), prev_root, root],
    )
    rows = [{"saga": str(h.id), "seq": h.head_seq, "hash": h.head_hash} for h in heads]
    storage.execute(
        "INSERT INTO ledger_checkpointhead (id, checkpoint_id, saga_id, seq, hash) "
        "SELECT gen_random_uuid(), %s, r.saga, r.seq, r.hash "
        "FROM json_to_recordset(%s::json) AS r(saga uuid, seq bigint, hash text)",
        [made.id, json.dumps(rows)],
    )
    return len(heads)
