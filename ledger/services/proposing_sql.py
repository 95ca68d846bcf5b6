"""The statements of a proposal."""

_COLUMNS = """s.id, s.saga_id, s.step_id, s.state, s.tool, s.fingerprint, s.args_text, s.error,
    s.position, s.effect_key, s.former"""

# A step whose first choice is another, and that runs this as its alternative, or would have run
# it before it was edited. The partial index is empty for most sagas.
_ALIVE = "(s.state NOT IN ('failed', 'rejected', 'cancelled', 'compensated') OR s.residue)"
_OTHER_VERSION = """(s.alternative > 0 OR s.revision > 1)
    AND (s.alternative > 0 AND s.alternatives -> (s.alternative - 1) @> jsonb_build_object(
            'tool', %(tool)s::text, 'fingerprint', %(fingerprint)s::text)
        OR s.former @> jsonb_build_array(jsonb_build_object(
            'tool', %(tool)s::text, 'fingerprint', %(fingerprint)s::text)))"""
# The same of a step that is archived: its args are gone.
_ARCHIVED = """s.id, s.saga_id, s.step_id, s.state, s.tool, s.fingerprint, NULL::text, s.error,
    s.position, c.key, NULL::jsonb"""

# A no to exactly this, in this saga: to what the step ran when it was said, which may be an
# alternative. It sticks until a person reopens it.
_NO = "s.state = 'rejected' AND s.error ->> 'code' = 'rejected'"
_REOPENED = """EXISTS (SELECT 1 FROM ledger_entry e WHERE e.saga_id = s.saga_id
    AND e.step_id = s.step_id AND e.kind = 'approval.reopened')"""
_SAME_CHOICE = "s.alternative = 0 AND s.tool = %(tool)s AND s.fingerprint = %(fingerprint)s"
_SAME_ALTERNATIVE = """s.alternative > 0
    AND s.alternatives -> (s.alternative - 1) @> jsonb_build_object(
        'tool', %(tool)s::text, 'fingerprint', %(fingerprint)s::text)"""
REJECTED = f"""
SELECT s.step_id FROM ledger_step s WHERE s.saga_id = %(saga)s::uuid AND {_NO}
    AND ({_SAME_CHOICE} OR {_SAME_ALTERNATIVE}) AND NOT {_REOPENED} LIMIT 1
"""  # noqa: S608 - the conditions are ours

# Every step that this proposal may be about, in one look: the same step, a twin under another
# name, one that runs or ran this as another version of itself, and the last that nobody rejected,
# which it waits for (ledger/services/forward.py). `no` says that people decided against one of
# them: `REJECTIONS` then tells which, and whether it was reopened. Few branches, because each
# costs 0.03 ms before it has read anything.
RELATED = f"""
SELECT 'same' AS why, {_COLUMNS} FROM ledger_step s
    WHERE s.saga_id = %(saga)s::uuid AND s.step_id = %(step_id)s
UNION ALL
(SELECT DISTINCT ON (1) CASE WHEN {_ALIVE} THEN 'twin' WHEN {_NO} THEN 'no' END, {_COLUMNS}
    FROM ledger_step s WHERE s.saga_id = %(saga)s::uuid AND s.tool = %(tool)s
        AND s.fingerprint = %(fingerprint)s AND s.step_id <> %(step_id)s
    ORDER BY 1, s.position)
UNION ALL
(SELECT DISTINCT ON (1) CASE WHEN {_ALIVE} THEN 'version' WHEN {_NO} THEN 'no' END, {_COLUMNS}
    FROM ledger_step s WHERE s.saga_id = %(saga)s::uuid AND s.step_id <> %(step_id)s
        AND {_OTHER_VERSION}
    ORDER BY 1, s.position)
UNION ALL
(SELECT 'before', {_COLUMNS} FROM ledger_step s
    WHERE s.saga_id = %(saga)s::uuid AND s.state <> 'rejected' ORDER BY s.position DESC LIMIT 1)
"""  # noqa: S608 - the columns are ours

# The same of a tool that claims an effect: also the holder of this effect, and one whose effect
# key only looks the same.
RELATED_BY_EFFECT = f"""{RELATED}
UNION ALL
SELECT 'effect', {_COLUMNS} FROM ledger_effectclaim c JOIN ledger_step s ON s.id = c.step_id
    WHERE c.key = %(claim)s AND c.released_at IS NULL
UNION ALL
SELECT 'effect', {_ARCHIVED} FROM ledger_claimtombstone c
    JOIN ledger_steptombstone s ON s.id = c.step_id
    WHERE c.key = %(claim)s AND NOT EXISTS (SELECT 1 FROM ledger_step l WHERE l.id = s.id)
UNION ALL
(SELECT 'lookalike', {_ARCHIVED} FROM ledger_claimtombstone c
    JOIN ledger_steptombstone s ON s.id = c.step_id
    WHERE c.skeleton = %(skeleton)s AND c.key <> %(claim)s LIMIT 1)
UNION ALL
(SELECT 'lookalike', {_COLUMNS} FROM ledger_effectclaim c JOIN ledger_step s ON s.id = c.step_id
    WHERE c.skeleton = %(skeleton)s AND c.key <> %(claim)s AND c.released_at IS NULL LIMIT 1)
"""  # noqa: S608

REJECTIONS = f"""
SELECT CASE WHEN {_REOPENED} THEN 'reopened' ELSE 'rejected' END AS why, {_COLUMNS}
    FROM ledger_step s WHERE s.saga_id = %(saga)s::uuid AND {_SAME_CHOICE} AND {_NO}
UNION ALL
SELECT CASE WHEN {_REOPENED} THEN 'reopened' ELSE 'rejected' END, {_COLUMNS}
    FROM ledger_step s WHERE s.saga_id = %(saga)s::uuid AND {_SAME_ALTERNATIVE} AND {_NO}
"""  # noqa: S608

TWIN = f"""
(SELECT s.step_id, s.state, s.position FROM ledger_step s
    WHERE s.saga_id = %(saga)s::uuid AND s.tool = %(tool)s AND s.fingerprint = %(fingerprint)s
        AND s.step_id <> %(step_id)s AND {_ALIVE})
UNION ALL
(SELECT s.step_id, s.state, s.position FROM ledger_step s
    WHERE s.saga_id = %(saga)s::uuid AND s.step_id <> %(step_id)s AND {_ALIVE} AND {_OTHER_VERSION})
ORDER BY position LIMIT 1
"""  # noqa: S608

# Whoever wants an effect that looks like this one waits until it is committed or given up: else
# two lookalikes that are submitted at once would never see each other. Held until COMMIT; taken
# after the saga's lock and before the claim.
ALONE_WITH_SKELETON = "SELECT pg_advisory_xact_lock(hashtextextended(%s::text, 7353))"

# The same of who waits for nobody.
ALONE_IF_FREE = "SELECT pg_try_advisory_xact_lock(hashtextextended(%s::text, 7353)) AS alone"

# Waits for a claim that is being committed right now, and then inserts nothing.
CLAIM_EFFECT = """
INSERT INTO ledger_effectclaim (id, key, skeleton, step_id, claimed_at)
SELECT n.id, n.key, n.skeleton, n.step_id, clock_timestamp()
FROM (VALUES (%s::uuid, %s::text, %s::text, %s::uuid)) AS n(id, key, skeleton, step_id)
WHERE NOT EXISTS (SELECT 1 FROM ledger_claimtombstone c WHERE c.key = n.key)
ON CONFLICT (key) WHERE released_at IS NULL DO NOTHING
"""

# The same; whoever finds that another was first undoes its whole transition.
CLAIM_EFFECT_SURELY = f"""
WITH claimed AS ({CLAIM_EFFECT} RETURNING 1) SELECT ledger_expect(count(*), 1) FROM claimed
"""  # noqa: S608

# Asked after claiming: another step that holds this effect, or one that only looks different.
OTHER_HOLDER = """
SELECT s.saga_id, s.step_id FROM ledger_effectclaim c JOIN ledger_step s ON s.id = c.step_id
WHERE c.skeleton = %(skeleton)s AND c.released_at IS NULL AND c.step_id <> %(step)s
UNION ALL
SELECT s.saga_id, s.step_id FROM ledger_claimtombstone c
    JOIN ledger_steptombstone s ON s.id = c.step_id WHERE c.skeleton = %(skeleton)s
LIMIT 1
"""

INSERT_STEP = """
WITH version AS (
    INSERT INTO ledger_toolversion (digest, key, version, definition, first_seen_at)
    SELECT %(tool_digest)s::text, %(tool)s::text, %(tool_version)s, %(definition)s::text::jsonb,
        clock_timestamp()
    -- It is there already but for the first step of a release: then nothing of it is parsed.
    WHERE NOT EXISTS (SELECT FROM ledger_toolversion WHERE digest = %(tool_digest)s::text)
    ON CONFLICT (digest) DO NOTHING
), counted AS (
    UPDATE ledger_saga SET step_count = %(position)s WHERE id = %(saga)s::uuid
)
INSERT INTO ledger_step (
    id, saga_id, step_id, position, revision, tool, tool_version_id, tier, blast_radius,
    args_text, args, fingerprint, idempotency_key, effect_key, resource, reason, repeat_of_id,
    duplicate_of_id, alternatives, alternative, verdict, verdict_rule, policy_digest, held_why,
    confirmed_tool, state, fence, attempts, reclaims, error, residue, created_at, finished_at
) VALUES (
    %(id)s, %(saga)s, %(step_id)s, %(position)s, 1, %(tool)s, %(tool_digest)s, %(tier)s,
    %(blast_radius)s, %(args_text)s::text, %(args_text)s::text::jsonb, %(fingerprint)s,
    %(idempotency_key)s, %(effect_key)s, %(resource)s, %(reason)s, %(repeat_of)s, %(duplicate_of)s,
    %(alternatives)s::jsonb, 0, %(verdict)s, %(rule)s, %(policy)s, '', '', %(state)s::text, 0, 0, 0,
    %(error)s::jsonb, false, clock_timestamp(),
    CASE WHEN %(state)s::text = 'rejected' THEN clock_timestamp() END
)
"""

INSERT_MESSAGE = """
INSERT INTO ledger_outboxmessage (
    step_id, kind, direction, saga_fence, tool, agent, saga_id, resource, round, negatives,
    due_at, created_at, parked_why
) VALUES (%s, 'run', 'forward', %s, %s, %s, %s, %s, 0, 0, clock_timestamp(), clock_timestamp(), '')
"""
