"""What an export holds of the gate, line by line, and the wall that has a seal cover it.

The ledger seals a digest of these lines without knowing the tables (ledger/doors/leaving.py).
"""

from __future__ import annotations

from ledger.walls_sql import REFUSED

_OF_REQUESTS = "t.approval_id IN (SELECT a.id FROM approvals_approval a WHERE a.saga_id = {saga})"
# Every table whose rows belong to one saga, in the order in which they can be put back, and which
# of its rows `t` those are. A test looks for foreign keys that lead here and are not in it.
EXPORTED = (
    ("approvals_approval", "t.saga_id = {saga}"),
    ("approvals_decision", _OF_REQUESTS),
    ("approvals_review", _OF_REQUESTS),
)

_QUERIES = "".join(
    f"""
    RETURN QUERY SELECT jsonb_build_object('table', '{table}', 'row', to_jsonb(t))::text
        FROM {table} t WHERE {where.format(saga="which")} ORDER BY t.id;"""
    for table, where in EXPORTED
)
INSTALL = f"""
CREATE OR REPLACE FUNCTION approvals_saga_lines(which uuid) RETURNS SETOF text
LANGUAGE plpgsql SET timezone = 'UTC' SET datestyle = 'ISO' SET bytea_output = 'hex' AS $door$
BEGIN{_QUERIES}
END $door$;
CREATE OR REPLACE FUNCTION approvals_tombstone_true() RETURNS trigger LANGUAGE plpgsql AS $door$
BEGIN
    IF NEW.gate_sha256 IS DISTINCT FROM (SELECT encode(sha256(convert_to(
            coalesce(string_agg(l.line || E'\\n', '' ORDER BY l.n), ''), 'UTF8')), 'hex')
            FROM approvals_saga_lines(NEW.saga_id) WITH ORDINALITY AS l(line, n)) THEN
        RAISE EXCEPTION 'saga % cannot be archived: what was asked and decided about it is not '
            'what its export holds', NEW.saga_id USING ERRCODE = '{REFUSED}';
    END IF;
    RETURN NEW;
END $door$;
CREATE OR REPLACE TRIGGER approvals_tombstone_true BEFORE INSERT ON ledger_tombstone
    FOR EACH ROW EXECUTE FUNCTION approvals_tombstone_true();
"""
FUNCTIONS = {"approvals_saga_lines": "uuid", "approvals_tombstone_true": ""}
# Dropping a function with CASCADE drops the triggers that call it, and nothing else.
REMOVE = "\n".join(
    f"DROP FUNCTION IF EXISTS {name}({takes}) CASCADE;" for name, takes in FUNCTIONS.items()
)
