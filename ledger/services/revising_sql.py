"""The statement of a revision; the database refuses it in any other state (ledger/walls.py)."""

# Of a version that goes on with an alternative the first choice stays as it was tried: an answer
# of it that comes late is settled, and undone, by what it ran under.
REVISE_STEP = """
WITH version AS (
    INSERT INTO ledger_toolversion (digest, key, version, definition, first_seen_at)
    VALUES (%(tool_digest)s, %(tool)s, %(tool_version)s, %(definition)s::jsonb, clock_timestamp())
    ON CONFLICT (digest) DO NOTHING
), sent AS (SELECT %(alternative)s::int AS runs)
UPDATE ledger_step SET
    revision = revision + 1, former = former || %(former)s::jsonb, alternative = sent.runs,
    alternatives = %(alternatives)s::jsonb, reason = %(reason)s,
    tool_version_id = CASE sent.runs WHEN 0 THEN %(tool_digest)s ELSE tool_version_id END,
    args_text = CASE sent.runs WHEN 0 THEN %(args_text)s::text ELSE args_text END,
    args = CASE sent.runs WHEN 0 THEN %(args_text)s::text::jsonb ELSE args END,
    fingerprint = CASE sent.runs WHEN 0 THEN %(fingerprint)s ELSE fingerprint END,
    idempotency_key = CASE sent.runs WHEN 0 THEN %(idempotency_key)s ELSE idempotency_key END,
    resource = CASE sent.runs WHEN 0 THEN %(resource)s ELSE resource END,
    tier = CASE sent.runs WHEN 0 THEN %(tier)s ELSE tier END,
    blast_radius = CASE sent.runs WHEN 0 THEN %(blast_radius)s ELSE blast_radius END,
    verdict = CASE sent.runs WHEN 0 THEN 'ask' ELSE verdict END
FROM sent WHERE id = %(id)s AND state = 'change_requested' AND effect_key = %(effect_key)s
"""
