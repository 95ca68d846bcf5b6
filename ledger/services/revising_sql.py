"""The statement of a revision; the database refuses it in any other state (ledger/walls.py)."""

REVISE_STEP = """
WITH version AS (
    INSERT INTO ledger_toolversion (digest, key, version, definition, first_seen_at)
    VALUES (%(tool_digest)s, %(tool)s, %(tool_version)s, %(definition)s::jsonb, clock_timestamp())
    ON CONFLICT (digest) DO NOTHING
)
UPDATE ledger_step SET
    revision = revision + 1,
    former = former || jsonb_build_array(jsonb_build_object(
        'revision', revision, 'alternative', 0, 'tool', tool, 'args_text', args_text,
        'fingerprint', fingerprint)),
    tool_version_id = %(tool_digest)s, args_text = %(args_text)s::text,
    args = %(args_text)s::text::jsonb, fingerprint = %(fingerprint)s,
    idempotency_key = %(idempotency_key)s, resource = %(resource)s,
    alternatives = %(alternatives)s::jsonb, reason = %(reason)s
WHERE id = %(id)s AND state = 'change_requested' AND effect_key = %(effect_key)s
"""
