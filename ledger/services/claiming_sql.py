"""The statements of a claim."""

from ledger.services.unit_sql import Batch

# What may leave now: due, not taken, not frozen, its resource free. Shared with the relay,
# which rings only for what a shift could really take.
TAKEABLE = """
o.taken_at IS NULL AND o.due_at <= clock_timestamp()
AND (o.kind = 'probe' OR (
    NOT EXISTS (
        SELECT 1 FROM ledger_freeze f
        WHERE f.lifted_at IS NULL
            AND (f.expires_at IS NULL OR f.expires_at > clock_timestamp())
            AND (f.scope = 'all'
                OR (f.scope = 'tool' AND f.value = o.tool)
                OR (f.scope = 'agent' AND f.value = o.agent)
                OR (f.scope = 'saga' AND f.value = o.saga_id::text)))
    AND (o.resource = '' OR NOT EXISTS (
        SELECT 1 FROM ledger_resourcehold h
        WHERE h.resource = o.resource AND h.step_id <> o.step_id))
))
"""

# By an unsent flag and never by a cursor over ids (case C51); a locked row is somebody else's.
TAKE = f"""
SELECT o.id AS message, o.step_id AS of_step, o.saga_id AS of_saga, o.kind,
    o.direction, o.saga_fence, o.round, o.negatives, o.due_at
FROM ledger_outboxmessage o WHERE {TAKEABLE}
ORDER BY o.due_at, o.id LIMIT %s FOR UPDATE OF o SKIP LOCKED
"""  # noqa: S608 - the condition is ours

VOID = """
UPDATE ledger_outboxmessage SET taken_at = coalesce(taken_at, clock_timestamp()),
    lease_until = NULL
WHERE id = %s
"""

TAKE_LOOK = """
UPDATE ledger_outboxmessage SET taken_at = clock_timestamp(),
    lease_until = clock_timestamp() + %s * interval '1 second'
WHERE id = %s RETURNING taken_at
"""

PARK = """
UPDATE ledger_outboxmessage SET due_at = clock_timestamp() + %s * interval '1 second',
    parked_why = %s
WHERE id = %s
"""

# Not yet: nothing is wrong with it, so nobody needs to see it.
PUT_OFF = """
UPDATE ledger_outboxmessage SET due_at = clock_timestamp() + %s * interval '1 second'
WHERE id = %s
"""

# Sorted by resource, so that two claims wait for each other in one order only.
HOLD = """
INSERT INTO ledger_resourcehold (resource, step_id, since)
SELECT r.resource, r.step_id, clock_timestamp()
FROM unnest(%s::text[], %s::uuid[]) AS r(resource, step_id) ORDER BY r.resource
ON CONFLICT (resource) DO NOTHING
"""
HOLDERS = "SELECT resource, step_id FROM ledger_resourcehold WHERE resource = ANY(%s)"

# All intents of a claim. The record of a key that was executed is not touched: that key is
# spent, the claim is undone, and `SPENT_KEYS` says which step it was.
START = Batch(
    """
WITH intent AS MATERIALIZED (
    SELECT * FROM {rows}
), promised AS (
    INSERT INTO ledger_idempotencyrecord AS i (
        key, step_id, direction, fingerprint, state, lease_until, created_at, updated_at
    )
    SELECT r.key, r.step, r.direction, r.fingerprint, 'pending',
        clock_timestamp() + r.lease_s * interval '1 second', clock_timestamp(), clock_timestamp()
    FROM intent r
    ON CONFLICT (key) DO UPDATE SET state = 'pending', lease_until = excluded.lease_until,
        updated_at = clock_timestamp()
    WHERE i.state <> 'executed'
    RETURNING 1
), taken AS (
    UPDATE ledger_outboxmessage o SET taken_at = clock_timestamp()
    FROM intent i WHERE o.id = i.id AND o.id = ANY(%(ids)s::bigint[])
), started AS (
    INSERT INTO ledger_attempt (
        id, step_id, direction, alternative, fence, token, idempotency_key, shift_id, round,
        state, started_at, lease_until
    )
    SELECT i.attempt, i.step, i.direction, i.alternative, i.fence, i.token, i.key, i.shift, i.round,
        'started', clock_timestamp(), clock_timestamp() + i.lease_s * interval '1 second'
    FROM intent i
)
SELECT ledger_expect(count(*), %(count)s, %(spent)s) FROM promised
""",
    "id bigint, attempt uuid, step uuid, direction text, alternative int, fence int, token uuid, "
    "key text, fingerprint text, shift uuid, round int, lease_s float8",
    one=[
        """
INSERT INTO ledger_idempotencyrecord AS i (
    key, step_id, direction, fingerprint, state, lease_until, created_at, updated_at
) VALUES (
    %(key)s, %(step)s, %(direction)s, %(fingerprint)s, 'pending',
    clock_timestamp() + %(lease_s)s::float8 * interval '1 second', clock_timestamp(),
    clock_timestamp()
) ON CONFLICT (key) DO UPDATE SET state = 'pending', lease_until = excluded.lease_until,
    updated_at = clock_timestamp()
WHERE ledger_expect((i.state <> 'executed')::int, 1, %(spent)s) = 1
""",
        "UPDATE ledger_outboxmessage SET taken_at = clock_timestamp() WHERE id = %(id)s",
        """
INSERT INTO ledger_attempt (
    id, step_id, direction, alternative, fence, token, idempotency_key, shift_id, round,
    state, started_at, lease_until
) VALUES (
    %(attempt)s, %(step)s, %(direction)s, %(alternative)s, %(fence)s, %(token)s, %(key)s, %(shift)s,
    %(round)s, 'started', clock_timestamp(),
    clock_timestamp() + %(lease_s)s::float8 * interval '1 second'
)
""",
    ],
)
SPENT_KEYS = "SELECT key FROM ledger_idempotencyrecord WHERE key = ANY(%s) AND state = 'executed'"
