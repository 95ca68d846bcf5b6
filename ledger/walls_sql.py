"""The walls that need no state table: the chain, the doorbells, and guarded writes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import TypeVar

from ledger.states import STEP_FINISHED, StepState

S = TypeVar("S", bound=StrEnum)

# SQLSTATE of a refused change: class P0 is PL/pgSQL's own, so no driver retries it.
REFUSED = "P0409"
# Not refused, only too late: somebody else changed the row first. The transition starts over,
# or is dropped.
SUPERSEDED = "P0410"
# The idempotency record of what was to run says `executed`: that key is spent.
SPENT = "P0411"


def quoted(states: Iterable[str]) -> str:
    return ", ".join(f"'{state}'" for state in sorted(states))


def edges(transitions: Mapping[S, frozenset[S]]) -> str:
    """Every edge as `old>new`, in an array: one expression, where pairs would be a hundred, and
    each expression of a trigger is made anew in every transaction."""
    pairs = [
        f"{old}>{new}" for old, targets in sorted(transitions.items()) for new in sorted(targets)
    ]
    return "'{" + ",\n        ".join(pairs) + "}'"


def changed(columns: Iterable[str]) -> str:
    """Whether an UPDATE changes any of these, as SQL."""
    columns = tuple(columns)
    old = ", ".join(f"OLD.{column}" for column in columns)
    new = ", ".join(f"NEW.{column}" for column in columns)
    return f"({old}) IS DISTINCT FROM ({new})"


def a(noun: str) -> str:
    """The noun with its article."""
    return f"{'an' if noun[0] in 'aeiou' else 'a'} {noun}"


def never(
    noun: str, name: str, rule: str, *, what: str = "state", called: str | None = None
) -> str:
    """The statement of a trigger that refuses a row of which `rule` holds. `what`: the column that
    tells a reader of the refusal which of the rows it is, `called` what they call it."""
    row = called or a(noun)
    return f"""
    IF {rule} THEN
        RAISE EXCEPTION '{name.replace("_", " ")}: % of {row} that is %', TG_OP, NEW.{what}
            USING ERRCODE = '{REFUSED}', CONSTRAINT = 'ledger_{noun}_{name}';
    END IF;"""


def append_only(table: str) -> str:
    """The triggers that refuse every change of a table's rows."""
    return f"""
CREATE OR REPLACE TRIGGER {table}_no_change BEFORE UPDATE OR DELETE ON {table}
    FOR EACH ROW EXECUTE FUNCTION ledger_append_only();
CREATE OR REPLACE TRIGGER {table}_no_truncate BEFORE TRUNCATE ON {table}
    FOR EACH STATEMENT EXECUTE FUNCTION ledger_append_only();
"""


def kept(table: str, function: str) -> str:
    """The triggers that have `function` decide whether rows of a table may go."""
    return f"""\
CREATE OR REPLACE TRIGGER {table}_no_delete BEFORE DELETE ON {table}
    FOR EACH ROW EXECUTE FUNCTION {function}();
CREATE OR REPLACE TRIGGER {table}_no_truncate BEFORE TRUNCATE ON {table}
    FOR EACH STATEMENT EXECUTE FUNCTION {function}();"""


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
    -- The hash joins these with line breaks, so none may hold one.
    IF NEW.kind !~ '^[a-z]+(\\.[a-z_]+)+$' OR strpos(NEW.step_id || NEW.actor, E'\\n') > 0 THEN
        RAISE EXCEPTION 'an entry of the kind % is not one line each', NEW.kind
            USING ERRCODE = '{REFUSED}', CONSTRAINT = 'ledger_entry_one_line';
    END IF;
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
    -- Who says which entry this is has not read what another has written meanwhile.
    IF NEW.seq NOT IN (0, head + 1) THEN
        RAISE EXCEPTION 'entry % of saga % would be entry %', NEW.seq, NEW.saga_id, head + 1
            USING ERRCODE = '{SUPERSEDED}';
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

# Doorbells. Losing one costs time and nothing else: every listener polls too.
WAKE = f"""
CREATE OR REPLACE FUNCTION ledger_outbox_wake() RETURNS trigger LANGUAGE plpgsql AS $wall$
BEGIN
    PERFORM pg_notify('ledger_outbox', '');
    RETURN NULL;
END $wall$;
CREATE OR REPLACE TRIGGER ledger_outbox_wake AFTER INSERT ON ledger_outboxmessage
    FOR EACH STATEMENT EXECUTE FUNCTION ledger_outbox_wake();
CREATE OR REPLACE FUNCTION ledger_step_wake() RETURNS trigger LANGUAGE plpgsql AS $wall$
BEGIN
    IF OLD.state <> NEW.state
        AND NEW.state = ANY ('{{{",".join(sorted(STEP_FINISHED | {StepState.STUCK}))}}}') THEN
        PERFORM pg_notify('ledger_finished', NEW.saga_id::text || ' ' || NEW.id::text);
    END IF;
    RETURN NULL;
END $wall$;
CREATE OR REPLACE TRIGGER ledger_step_wake AFTER UPDATE OF state ON ledger_step
    FOR EACH ROW EXECUTE FUNCTION ledger_step_wake();
"""

# A guarded write checks itself, in the statement: nothing has to come back to the caller before
# COMMIT can be sent.
EXPECT = f"""
CREATE OR REPLACE FUNCTION ledger_expect(got bigint, wanted bigint, code text
    DEFAULT '{SUPERSEDED}') RETURNS bigint LANGUAGE plpgsql AS $wall$
BEGIN
    IF got <> wanted THEN
        RAISE EXCEPTION '% rows instead of %', got, wanted USING ERRCODE = code;
    END IF;
    RETURN got;
END $wall$;
"""
