"""The door back, and the wall that keeps what was archived from being begun anew."""

from __future__ import annotations

from ledger.walls_sql import REFUSED

# AFTER, so that the insert has waited for whoever is just archiving: what that one committed is
# seen here. 40001, because the same transaction run again finds the tombstone and answers.
NOT_ANEW = """
CREATE OR REPLACE FUNCTION ledger_saga_not_anew() RETURNS trigger LANGUAGE plpgsql AS $door$
BEGIN
    IF EXISTS (SELECT FROM ledger_tombstone t
        WHERE (t.agent_id = NEW.agent_id AND t.task_id = NEW.task_id OR t.saga_id = NEW.id)
        AND NOT (t.saga_id = NEW.id AND ledger_is_returning(NEW.id))) THEN
        RAISE EXCEPTION 'the task % was archived', NEW.task_id USING ERRCODE = '40001';
    END IF;
    RETURN NULL;
END $door$;
CREATE OR REPLACE TRIGGER ledger_saga_not_anew AFTER INSERT ON ledger_saga
    FOR EACH ROW EXECUTE FUNCTION ledger_saga_not_anew();
CREATE OR REPLACE FUNCTION ledger_effectclaim_not_anew() RETURNS trigger LANGUAGE plpgsql AS $door$
BEGIN
    IF NEW.released_at IS NULL AND EXISTS (SELECT FROM ledger_claimtombstone c
        WHERE c.key = NEW.key AND c.step_id <> NEW.step_id) THEN
        RAISE EXCEPTION 'the effect % belongs to an archived step', NEW.key
            USING ERRCODE = '40001';
    END IF;
    RETURN NULL;
END $door$;
CREATE OR REPLACE TRIGGER ledger_effectclaim_not_anew AFTER INSERT ON ledger_effectclaim
    FOR EACH ROW EXECUTE FUNCTION ledger_effectclaim_not_anew();
"""

RETURNING = f"""
CREATE OR REPLACE FUNCTION ledger_is_returning(which uuid) RETURNS boolean
LANGUAGE plpgsql AS $door$
BEGIN
    -- Until its seal is back, which no hand can take away again, whatever becomes of the head.
    RETURN EXISTS (SELECT FROM ledger_restoration r LEFT JOIN ledger_saga g ON g.id = r.saga_id
        WHERE r.saga_id = which AND r.seq > coalesce(g.head_seq, 0)
        AND NOT EXISTS (SELECT FROM ledger_entry e WHERE e.saga_id = which AND e.seq = r.seq)
        AND r.seq = (SELECT max(t.seq) FROM ledger_tombstone t WHERE t.saga_id = which));
END $door$;
CREATE OR REPLACE FUNCTION ledger_restoration_true() RETURNS trigger LANGUAGE plpgsql AS $door$
BEGIN
    SELECT max(t.seq) INTO NEW.seq FROM ledger_tombstone t WHERE t.saga_id = NEW.saga_id;
    IF NEW.seq IS NULL OR EXISTS (SELECT FROM ledger_saga WHERE id = NEW.saga_id) THEN
        RAISE EXCEPTION 'saga % is not archived', NEW.saga_id USING ERRCODE = '{REFUSED}';
    END IF;
    NEW.at := clock_timestamp();
    RETURN NEW;
END $door$;
CREATE OR REPLACE TRIGGER ledger_restoration_true BEFORE INSERT ON ledger_restoration
    FOR EACH ROW EXECUTE FUNCTION ledger_restoration_true();
CREATE OR REPLACE FUNCTION ledger_restoration_whole() RETURNS trigger LANGUAGE plpgsql AS $door$
BEGIN
    IF NEW.seq <> (SELECT count(*) FROM ledger_entry
            WHERE saga_id = NEW.saga_id AND seq <= NEW.seq)
        OR NOT EXISTS (SELECT FROM ledger_entry e JOIN ledger_tombstone t
            ON t.saga_id = e.saga_id AND t.seq = e.seq AND t.hash = e.hash
            WHERE e.saga_id = NEW.saga_id AND e.seq = NEW.seq) THEN
        RAISE EXCEPTION 'saga % did not come back as it left', NEW.saga_id
            USING ERRCODE = '{REFUSED}';
    END IF;
    RETURN NULL;
END $door$;
DROP TRIGGER IF EXISTS ledger_restoration_whole ON ledger_restoration;
CREATE CONSTRAINT TRIGGER ledger_restoration_whole AFTER INSERT ON ledger_restoration
    DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION ledger_restoration_whole();
"""
