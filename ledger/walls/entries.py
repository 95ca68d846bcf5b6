"""The walls around entries: their chain, and no change of a state that none of them tells."""

from __future__ import annotations

from ledger.walls.words import REFUSED


# The text that an entry's hash is over: everything a reader of the API sees, one a line,
# the payload last. It is the same in ledger/chain.py, which verifies without the database.
def hash_of(kind: str = "NEW.kind", step_id: str = "NEW.step_id") -> str:
    """The hash of the entry in NEW, as SQL."""
    return f"""encode(sha256(convert_to(concat_ws(E'\\n',
        NEW.prev_hash, NEW.saga_id, NEW.seq, {kind}, {step_id},
        to_char(NEW.at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"'),
        NEW.actor, NEW.payload), 'UTF8')), 'hex')"""


# Only the entries of a saga that comes back keep what they had, and each must fit.
CHAIN = f"""
CREATE OR REPLACE FUNCTION ledger_entry_chain() RETURNS trigger LANGUAGE plpgsql AS $wall$
DECLARE head bigint; head_was text;
BEGIN
    SELECT head_seq, head_hash INTO head, head_was
        FROM ledger_saga WHERE id = NEW.saga_id FOR UPDATE;
    IF head IS NULL THEN
        RAISE EXCEPTION 'no saga % for this entry', NEW.saga_id USING ERRCODE = '23503';
    END IF;
    IF NEW.hash <> '' AND ledger_is_returning(NEW.saga_id) THEN
        IF (NEW.seq, NEW.prev_hash) IS DISTINCT FROM (head + 1, head_was)
            OR NEW.hash IS DISTINCT FROM {hash_of()} THEN
            RAISE EXCEPTION 'entry % of saga % does not fit its chain', NEW.seq, NEW.saga_id
                USING ERRCODE = '{REFUSED}';
        END IF;
        UPDATE ledger_saga SET head_seq = NEW.seq, head_hash = NEW.hash WHERE id = NEW.saga_id;
        NEW.state := coalesce(NEW.payload::jsonb ->> 'state', '');
        RETURN NEW;
    END IF;
    NEW.seq := head + 1;
    NEW.prev_hash := head_was;
    NEW.at := clock_timestamp();
    NEW.state := coalesce(NEW.payload::jsonb ->> 'state', '');
    NEW.hash := {hash_of()};
    UPDATE ledger_saga SET head_seq = NEW.seq, head_hash = NEW.hash, updated_at = NEW.at
        WHERE id = NEW.saga_id;
    RETURN NEW;
END $wall$;
CREATE OR REPLACE TRIGGER ledger_entry_chain BEFORE INSERT ON ledger_entry
    FOR EACH ROW EXECUTE FUNCTION ledger_entry_chain();
"""


def _told(noun: str) -> str:
    """Two triggers, because only an UPDATE has an old state to compare with: a write that
    leaves the state as it is must not search the saga's entries for the last one."""
    return f"""
DROP TRIGGER IF EXISTS ledger_{noun}_told_first ON ledger_{noun};
CREATE CONSTRAINT TRIGGER ledger_{noun}_told_first AFTER INSERT ON ledger_{noun}
    DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION ledger_{noun}_told();
DROP TRIGGER IF EXISTS ledger_{noun}_told ON ledger_{noun};
CREATE CONSTRAINT TRIGGER ledger_{noun}_told AFTER UPDATE OF state ON ledger_{noun}
    DEFERRABLE INITIALLY DEFERRED FOR EACH ROW WHEN (OLD.state IS DISTINCT FROM NEW.state)
    EXECUTE FUNCTION ledger_{noun}_told();
"""


# Checked at COMMIT, so that state and entry may be written in either order.
NO_CHANGE_WITHOUT_ENTRY = f"""
CREATE OR REPLACE FUNCTION ledger_step_told() RETURNS trigger LANGUAGE plpgsql AS $wall$
DECLARE told text; now_is text;
BEGIN
    SELECT state INTO now_is FROM ledger_step WHERE id = NEW.id;
    SELECT state INTO told FROM ledger_entry
        WHERE saga_id = NEW.saga_id AND step_id = NEW.step_id AND state <> ''
        ORDER BY seq DESC LIMIT 1;
    IF told IS DISTINCT FROM now_is THEN
        RAISE EXCEPTION 'step % is % but its last entry says %', NEW.id, now_is, told
            USING ERRCODE = '{REFUSED}';
    END IF;
    RETURN NULL;
END $wall$;
CREATE OR REPLACE FUNCTION ledger_saga_told() RETURNS trigger LANGUAGE plpgsql AS $wall$
DECLARE told text; now_is text;
BEGIN
    SELECT state INTO now_is FROM ledger_saga WHERE id = NEW.id;
    SELECT state INTO told FROM ledger_entry
        WHERE saga_id = NEW.id AND step_id = '' AND state <> '' ORDER BY seq DESC LIMIT 1;
    IF told IS DISTINCT FROM now_is THEN
        RAISE EXCEPTION 'saga % is % but its last entry says %', NEW.id, now_is, told
            USING ERRCODE = '{REFUSED}';
    END IF;
    RETURN NULL;
END $wall$;
{_told("step")}{_told("saga")}"""
