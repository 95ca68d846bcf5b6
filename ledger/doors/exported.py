"""What an export holds of a saga, line by line, and what its seal says of the answers that stay."""

from __future__ import annotations

# What a saga's export holds of the ledger, and in which order. A tool's version is a copy: it
# may belong to other sagas too, and stays.
_OF_STEPS = "t.step_id IN (SELECT s.id FROM ledger_step s WHERE s.saga_id = which)"
_VERSIONS = """t.digest IN (
            SELECT s.tool_version_id FROM ledger_step s WHERE s.saga_id = which
            UNION SELECT a ->> 'tool_digest' FROM ledger_step s,
                jsonb_array_elements(s.alternatives) a WHERE s.saga_id = which)"""
EXPORTED = (
    ("ledger_saga", "t.id = which", "t.id"),
    ("ledger_toolversion", _VERSIONS, 't.digest COLLATE "C"'),
    ("ledger_step", "t.saga_id = which", "t.position"),
    ("ledger_attempt", _OF_STEPS, "t.id"),
    ("ledger_idempotencyrecord", _OF_STEPS, 't.key COLLATE "C"'),
    ("ledger_effectclaim", _OF_STEPS, "t.id"),
    ("ledger_entry", "t.saga_id = which", "t.seq"),
)
# Has served its time when a saga has ended, and is not worth keeping.
SPENT = ("ledger_outboxmessage", "ledger_resourcehold")

_QUERIES = "".join(
    f"""
    RETURN QUERY SELECT jsonb_build_object('table', '{table}', 'row', to_jsonb(t))::text
        FROM {table} t WHERE {where} ORDER BY {order};"""
    for table, where, order in EXPORTED
)

LINES = f"""
CREATE OR REPLACE FUNCTION ledger_saga_lines(which uuid) RETURNS SETOF text
LANGUAGE plpgsql SET timezone = 'UTC' SET datestyle = 'ISO' SET bytea_output = 'hex' AS $door$
BEGIN{_QUERIES}
END $door$;
CREATE OR REPLACE FUNCTION ledger_saga_digest(which uuid) RETURNS text LANGUAGE plpgsql AS $door$
BEGIN
    RETURN (SELECT encode(sha256(convert_to(
        string_agg(l.line || E'\\n', '' ORDER BY l.n), 'UTF8')), 'hex')
        FROM ledger_saga_lines(which) WITH ORDINALITY AS l(line, n));
END $door$;
"""

# What the seal of a saga says of the answers that stay: one line a step and a claim.
ANSWERS = """
CREATE OR REPLACE FUNCTION ledger_saga_answers(which uuid) RETURNS text LANGUAGE plpgsql AS $door$
BEGIN
    RETURN (SELECT encode(sha256(convert_to(
        coalesce(string_agg(told.line, E'\\n' ORDER BY told.line COLLATE "C"), ''), 'UTF8')), 'hex')
        FROM (
            SELECT concat_ws(' ', 'step', s.id, s.fingerprint, s.idempotency_key, s.state,
                encode(sha256(convert_to(coalesce(s.result_text, ''), 'UTF8')), 'hex'),
                encode(sha256(convert_to(coalesce(s.error::text, ''), 'UTF8')), 'hex'),
                s.tool, s.step_id) AS line
            FROM ledger_steptombstone s WHERE s.saga_id = which
            UNION ALL
            SELECT concat_ws(' ', 'claim', c.step_id,
                encode(sha256(convert_to(c.key, 'UTF8')), 'hex'))
            FROM ledger_claimtombstone c JOIN ledger_steptombstone s ON s.id = c.step_id
            WHERE s.saga_id = which
        ) told);
END $door$;
"""
