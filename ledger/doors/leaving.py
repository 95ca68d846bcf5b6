"""The door out: a tombstone, filled in by the database from the rows that it stands for."""

from __future__ import annotations

from ledger.states import SAGA_ENDED, STEP_FINISHED
from ledger.walls_sql import REFUSED, hash_of, quoted

_ENDED, _FINISHED = quoted(SAGA_ENDED), quoted(STEP_FINISHED)
_MINE = "(SELECT s.id FROM ledger_step s WHERE s.saga_id = g.id)"
# One sentence a reason; the first that holds is told. The service asks the same, in bulk, so as
# not to try what would be refused (ledger/services/archiving.py).
OPEN = (
    ("it has not ended", f"g.state NOT IN ({_ENDED})"),
    (
        "a step of it is not finished",
        f"""EXISTS (SELECT FROM ledger_step s WHERE s.saga_id = g.id
            AND s.state NOT IN ({_FINISHED}))""",
    ),
    (
        "something about a step of it waits for an operator",
        "EXISTS (SELECT FROM ledger_step s WHERE s.saga_id = g.id AND s.held_why <> '')",
    ),
    (
        "an attempt of it is under way",
        f"EXISTS (SELECT FROM ledger_attempt a WHERE a.step_id IN {_MINE} AND a.state = 'started')",
    ),
    (
        "a message of it waits",
        f"""EXISTS (SELECT FROM ledger_outboxmessage o WHERE o.step_id IN {_MINE}
            AND (o.taken_at IS NULL OR o.lease_until IS NOT NULL))""",
    ),
    (
        "it holds a resource",
        f"EXISTS (SELECT FROM ledger_resourcehold h WHERE h.step_id IN {_MINE})",
    ),
    (
        "what became of it is still to be told",
        """EXISTS (SELECT FROM ledger_notice n WHERE n.saga_id = g.id
            AND n.spread_at IS NULL)""",
    ),
    (
        "its chain is not whole",
        """g.head_seq <> (SELECT count(*) FROM ledger_entry e WHERE e.saga_id = g.id)
            OR g.head_hash IS DISTINCT FROM (SELECT e.hash FROM ledger_entry e
                WHERE e.saga_id = g.id AND e.seq = g.head_seq)""",
    ),
)
_WHY_OPEN = "".join(f"\n        WHEN {holds} THEN '{why}'" for why, holds in OPEN)
_PAYLOAD = " || ',' || ".join(
    f"""'"{name}":' || to_json({value})::text"""
    for name, value in (
        ("export", "file"),
        ("sha256", "NEW.sha256"),
        ("gate_sha256", "NEW.gate_sha256"),
        ("agent", "agent_name"),
        ("task_id", "NEW.task_id"),
        ("name", "NEW.name"),
        ("opened_digest", "NEW.opened_digest"),
        ("outcome", "NEW.state"),
        ("steps", "NEW.steps"),
        ("answers", "ledger_saga_answers(NEW.saga_id)"),
    )
)
SEALED = "saga.archived"

LEAVING = f"""
CREATE OR REPLACE FUNCTION ledger_is_leaving(which uuid) RETURNS boolean
LANGUAGE plpgsql AS $door$
BEGIN
    -- Not below a tombstone that it has come back from, whatever has become of its head since: by
    -- that one it may not leave again.
    RETURN EXISTS (SELECT FROM ledger_tombstone t JOIN ledger_saga g ON g.id = t.saga_id
        WHERE t.saga_id = which AND t.seq = g.head_seq + 1 AND NOT EXISTS (
            SELECT FROM ledger_restoration r WHERE r.saga_id = which AND r.seq >= t.seq));
END $door$;
CREATE OR REPLACE FUNCTION ledger_tombstone_true() RETURNS trigger LANGUAGE plpgsql AS $door$
DECLARE why text; file text; agent_name text;
BEGIN
    PERFORM FROM ledger_saga WHERE id = NEW.saga_id FOR UPDATE;
    SELECT CASE {_WHY_OPEN}
        WHEN NEW.sha256 IS DISTINCT FROM ledger_saga_digest(g.id)
            THEN 'it is not what its export holds' END,
        g.head_seq + 1, g.agent_id, a.name, g.task_id, g.name, g.opened_digest, g.state,
        g.step_count, g.created_at, g.ended_at, g.head_hash
        INTO why, NEW.seq, NEW.agent_id, agent_name, NEW.task_id, NEW.name, NEW.opened_digest,
        NEW.state, NEW.steps, NEW.opened_at, NEW.ended_at, NEW.prev_hash
        FROM ledger_saga g JOIN ledger_agent a ON a.id = g.agent_id WHERE g.id = NEW.saga_id;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'there is no saga % to archive', NEW.saga_id USING ERRCODE = '{REFUSED}';
    END IF;
    IF why IS NOT NULL THEN
        RAISE EXCEPTION 'saga % cannot be archived: %', NEW.saga_id, why
            USING ERRCODE = '{REFUSED}';
    END IF;
    -- Steps that came back and leave again answer as they are now.
    INSERT INTO ledger_steptombstone (id) SELECT s.id FROM ledger_step s
        WHERE s.saga_id = NEW.saga_id ON CONFLICT (id) DO UPDATE SET state = EXCLUDED.state;
    INSERT INTO ledger_claimtombstone (id) SELECT c.id FROM ledger_effectclaim c
        JOIN ledger_step s ON s.id = c.step_id
        WHERE s.saga_id = NEW.saga_id AND c.released_at IS NULL ON CONFLICT (id) DO NOTHING;
    SELECT x.name INTO file FROM ledger_export x WHERE x.id = NEW.export_id;
    NEW.at := clock_timestamp();
    NEW.payload := '{{' || {_PAYLOAD} || '}}';
    NEW.hash := {hash_of(kind=f"'{SEALED}'", step_id="''")};
    RETURN NEW;
END $door$;
CREATE OR REPLACE TRIGGER ledger_tombstone_true BEFORE INSERT ON ledger_tombstone
    FOR EACH ROW EXECUTE FUNCTION ledger_tombstone_true();
CREATE OR REPLACE FUNCTION ledger_tombstone_left() RETURNS trigger LANGUAGE plpgsql AS $door$
BEGIN
    IF EXISTS (SELECT FROM ledger_saga WHERE id = NEW.saga_id) THEN
        RAISE EXCEPTION 'saga % has a tombstone and is still here', NEW.saga_id
            USING ERRCODE = '{REFUSED}';
    END IF;
    RETURN NULL;
END $door$;
DROP TRIGGER IF EXISTS ledger_tombstone_left ON ledger_tombstone;
CREATE CONSTRAINT TRIGGER ledger_tombstone_left AFTER INSERT ON ledger_tombstone
    DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION ledger_tombstone_left();
CREATE OR REPLACE FUNCTION ledger_steptombstone_true() RETURNS trigger LANGUAGE plpgsql AS $door$
BEGIN
    IF TG_OP = 'DELETE' OR TG_OP = 'UPDATE' AND NEW.id <> OLD.id THEN
        RAISE EXCEPTION '% keeps its rows: % is refused', TG_TABLE_NAME, TG_OP
            USING ERRCODE = '{REFUSED}';
    END IF;
    -- Whatever a writer says: a step's tombstone is its row, and without one it stays as it is.
    SELECT s.saga_id, s.step_id, s.position, s.tool, v.version, s.tier, s.fingerprint,
        s.idempotency_key, s.state, s.result_text, s.error, s.residue, s.attempts, s.created_at,
        s.executed_at, s.finished_at
        INTO NEW.saga_id, NEW.step_id, NEW.position, NEW.tool, NEW.tool_version, NEW.tier,
        NEW.fingerprint, NEW.idempotency_key, NEW.state, NEW.result_text, NEW.error, NEW.residue,
        NEW.attempts, NEW.created_at, NEW.executed_at, NEW.finished_at
        FROM ledger_step s JOIN ledger_saga g ON g.id = s.saga_id
        JOIN ledger_toolversion v ON v.digest = s.tool_version_id
        WHERE s.id = NEW.id AND g.state IN ({_ENDED}) AND s.state IN ({_FINISHED});
    IF NOT FOUND THEN
        RAISE EXCEPTION '% is no finished step of an ended saga', NEW.id
            USING ERRCODE = '{REFUSED}';
    END IF;
    RETURN NEW;
END $door$;
CREATE OR REPLACE TRIGGER ledger_steptombstone_true BEFORE INSERT ON ledger_steptombstone
    FOR EACH ROW EXECUTE FUNCTION ledger_steptombstone_true();
CREATE OR REPLACE TRIGGER ledger_steptombstone_no_change BEFORE UPDATE OR DELETE
    ON ledger_steptombstone FOR EACH ROW EXECUTE FUNCTION ledger_steptombstone_true();
CREATE OR REPLACE TRIGGER ledger_steptombstone_no_truncate BEFORE TRUNCATE
    ON ledger_steptombstone FOR EACH STATEMENT EXECUTE FUNCTION ledger_append_only();
CREATE OR REPLACE FUNCTION ledger_claimtombstone_true() RETURNS trigger
LANGUAGE plpgsql AS $door$
BEGIN
    SELECT c.key, c.skeleton, c.step_id INTO NEW.key, NEW.skeleton, NEW.step_id
        FROM ledger_effectclaim c JOIN ledger_steptombstone s ON s.id = c.step_id
        WHERE c.id = NEW.id AND c.released_at IS NULL;
    IF NOT FOUND THEN
        RAISE EXCEPTION '% is no claim of an archived step', NEW.id USING ERRCODE = '{REFUSED}';
    END IF;
    RETURN NEW;
END $door$;
CREATE OR REPLACE TRIGGER ledger_claimtombstone_true BEFORE INSERT ON ledger_claimtombstone
    FOR EACH ROW EXECUTE FUNCTION ledger_claimtombstone_true();
"""

# As before seals were over what the gate keeps, for a migration's way back.
UNSEALED = LEAVING.replace(""" || ',' || '"gate_sha256":' || to_json(NEW.gate_sha256)::text""", "")
