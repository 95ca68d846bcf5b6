"""The rules that hold whoever connects: SQL for triggers, generated from the state tables.

Plain SQL and no trigger library: the one that fits Django gives every trigger a switch
(a session setting) that turns it off, and psql could then throw it
(docs/decisions/0003-walls-in-plain-sql.md). `INSTALL` is what the migration runs;
tests/test_proof_states.py proves that a database holds exactly this text.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from types import MappingProxyType

from ledger.states import (
    ATTEMPT_TRANSITIONS,
    RECORD_TRANSITIONS,
    SAGA_ENDED,
    SAGA_TRANSITIONS,
    STEP_BEFORE_EFFECT,
    STEP_TRANSITIONS,
    AttemptState,
    RecordState,
    SagaState,
    StepState,
)
from ledger.walls_attempts import ATTEMPTS
from ledger.walls_frozen import FROZEN, FROZEN_STEP, sealed
from ledger.walls_sql import (
    CHAIN,
    EXPECT,
    REFUSED,
    WAKE,
    S,
    a,
    append_only,
    edges,
    kept,
    never,
    quoted,
)

STEP_START = (
    StepState.WAITING,
    StepState.AWAITING_APPROVAL,
    StepState.QUEUED,
    StepState.REJECTED,
)
# What must never be, beside the edges.
STEP_NEVER = {
    # The wall that needs no edge: an effect once recorded can never be run for again.
    "never_runs_again": "NEW.executed_at IS NOT NULL "
    f"AND NEW.state IN ({quoted(STEP_BEFORE_EFFECT)})",
    "committed_at": "NEW.state = 'committed' AND NEW.executed_at IS NULL",
    "counts": "least(NEW.position, NEW.revision, NEW.alternative, NEW.fence, NEW.attempts, "
    "NEW.reclaims) < 0",
}
SAGA_NEVER = {
    "ended_at": f"(NEW.state IN ({quoted(SAGA_ENDED)})) <> (NEW.ended_at IS NOT NULL)",
    "counts": "least(NEW.fence, NEW.step_count, NEW.retry_budget, NEW.retries_used, "
    "NEW.pivot_position) < 0",
}
ATTEMPT_NEVER = {"counts": "least(NEW.alternative, NEW.fence, NEW.round) < 0"}
_SAGA_OF_STEP = "(SELECT saga_id FROM ledger_step WHERE id = NEW.step_id)"
KEEPS = (
    *("ledger_saga", "ledger_step", "ledger_attempt", "ledger_toolversion"),
    *("ledger_idempotencyrecord", "ledger_effectclaim"),
)


def transition_wall(
    table: str,
    noun: str,
    transitions: Mapping[S, frozenset[S]],
    start: Iterable[str],
    saga: str = "NEW.saga_id",
    *,
    also: Mapping[str, str] = MappingProxyType({}),
    columns: str = "state",
) -> str:
    """`saga`: where a row names its saga, which may be coming back (ledger/doors).

    `also`: what must not be, by the name of the rule. These were CHECK constraints once; Postgres
    reads those from their stored text in every statement (docs/decisions/0085-lighter-walls.md).
    `columns`: the rules are looked at when one of these is written.
    """
    return f"""
CREATE OR REPLACE FUNCTION ledger_{noun}_transition() RETURNS trigger LANGUAGE plpgsql AS $wall$
BEGIN
    IF TG_OP = 'INSERT' THEN
        IF NEW.state NOT IN ({quoted(start)}) AND NOT (
            NEW.state IN ({quoted(transitions)}) AND ledger_is_returning({saga})
        ) THEN
            RAISE EXCEPTION '{a(noun)} cannot begin as %', NEW.state USING ERRCODE = '{REFUSED}';
        END IF;
    ELSIF OLD.state <> NEW.state AND OLD.state || '>' || NEW.state <> ALL ({edges(transitions)})
    THEN
        RAISE EXCEPTION '{a(noun)} cannot go from % to %', OLD.state, NEW.state
            USING ERRCODE = '{REFUSED}';
    END IF;{"".join(never(noun, name, rule) for name, rule in also.items())}
    RETURN NEW;
END $wall$;
CREATE OR REPLACE TRIGGER ledger_{noun}_begins BEFORE INSERT ON {table}
    FOR EACH ROW EXECUTE FUNCTION ledger_{noun}_transition();
CREATE OR REPLACE TRIGGER ledger_{noun}_transition BEFORE UPDATE OF {columns} ON {table}
    FOR EACH ROW EXECUTE FUNCTION ledger_{noun}_transition();
"""


APPEND_ONLY = (
    f"""
CREATE OR REPLACE FUNCTION ledger_append_only() RETURNS trigger LANGUAGE plpgsql AS $wall$
BEGIN
    IF TG_OP = 'DELETE' AND TG_TABLE_NAME = 'ledger_entry' THEN
        IF ledger_is_leaving(OLD.saga_id) THEN
            RETURN OLD;
        END IF;
    END IF;
    RAISE EXCEPTION '% is append-only: % is refused', TG_TABLE_NAME, TG_OP
        USING ERRCODE = '{REFUSED}';
END $wall$;
"""
    + append_only("ledger_entry")
    + append_only("ledger_checkpoint")
    + append_only("ledger_checkpointhead")
)

# Nothing here is ever deleted: a step that is gone could be proposed anew, and would run again.
# But for a saga that leaves as a whole, below a tombstone that answers for it (ledger/doors).
KEPT = (
    f"""
CREATE OR REPLACE FUNCTION ledger_kept() RETURNS trigger LANGUAGE plpgsql AS $wall$
DECLARE gone jsonb;
BEGIN
    IF TG_OP = 'DELETE' THEN
        gone := to_jsonb(OLD);
        IF ledger_is_leaving(CASE TG_TABLE_NAME
            WHEN 'ledger_saga' THEN (gone ->> 'id')::uuid
            WHEN 'ledger_step' THEN (gone ->> 'saga_id')::uuid
            ELSE (SELECT saga_id FROM ledger_step WHERE id = (gone ->> 'step_id')::uuid) END)
        THEN
            RETURN OLD;
        END IF;
    END IF;
    RAISE EXCEPTION '% keeps its rows: % is refused', TG_TABLE_NAME, TG_OP
        USING ERRCODE = '{REFUSED}';
END $wall$;
"""
    + "".join(f"\n{kept(table, 'ledger_kept')}\n" for table in KEEPS)
    + """
CREATE OR REPLACE TRIGGER ledger_toolversion_no_change BEFORE UPDATE ON ledger_toolversion
    FOR EACH ROW EXECUTE FUNCTION ledger_kept();
"""
)


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
    SELECT s.state, (SELECT e.state FROM ledger_entry e
            WHERE e.saga_id = s.saga_id AND e.step_id = s.step_id AND e.state <> ''
            ORDER BY e.seq DESC LIMIT 1)
        INTO now_is, told FROM ledger_step s WHERE s.id = NEW.id;
    IF told IS DISTINCT FROM now_is THEN
        RAISE EXCEPTION 'step % is % but its last entry says %', NEW.id, now_is, told
            USING ERRCODE = '{REFUSED}';
    END IF;
    RETURN NULL;
END $wall$;
CREATE OR REPLACE FUNCTION ledger_saga_told() RETURNS trigger LANGUAGE plpgsql AS $wall$
DECLARE told text; now_is text;
BEGIN
    SELECT g.state, (SELECT e.state FROM ledger_entry e
            WHERE e.saga_id = g.id AND e.step_id = '' AND e.state <> ''
            ORDER BY e.seq DESC LIMIT 1)
        INTO now_is, told FROM ledger_saga g WHERE g.id = NEW.id;
    IF told IS DISTINCT FROM now_is THEN
        RAISE EXCEPTION 'saga % is % but its last entry says %', NEW.id, now_is, told
            USING ERRCODE = '{REFUSED}';
    END IF;
    RETURN NULL;
END $wall$;
{_told("step")}{_told("saga")}"""

# An entry's saga is there: the chain's trigger holds its row while the entry is written, and a saga
# that leaves takes its entries along. A foreign key would look for it once more with every entry.
WHOLE = f"""
CREATE OR REPLACE FUNCTION ledger_saga_leaves_whole() RETURNS trigger LANGUAGE plpgsql AS $wall$
BEGIN
    IF EXISTS (SELECT FROM ledger_entry WHERE saga_id = OLD.id) THEN
        RAISE EXCEPTION 'saga % cannot go while its entries stay', OLD.id
            USING ERRCODE = '{REFUSED}';
    END IF;
    RETURN NULL;
END $wall$;
DROP TRIGGER IF EXISTS ledger_saga_leaves_whole ON ledger_saga;
CREATE CONSTRAINT TRIGGER ledger_saga_leaves_whole AFTER DELETE ON ledger_saga
    DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION ledger_saga_leaves_whole();
"""

# A message says what is to be done, and is written once; only when it leaves is written again.
_NO_MESSAGE = "".join(
    never("outbox", name, rule, what="kind", called="a message")
    for name, rule in {
        "kind_known": "NEW.kind NOT IN ('run', 'probe')",
        "counts": "least(NEW.saga_fence, NEW.round, NEW.negatives) < 0",
    }.items()
)
OUTBOX = f"""
CREATE OR REPLACE FUNCTION ledger_outbox_never() RETURNS trigger LANGUAGE plpgsql AS $wall$
BEGIN{_NO_MESSAGE}
    RETURN NEW;
END $wall$;
CREATE OR REPLACE TRIGGER ledger_outbox_never
    BEFORE INSERT OR UPDATE OF kind, saga_fence, round, negatives ON ledger_outboxmessage
    FOR EACH ROW EXECUTE FUNCTION ledger_outbox_never();
"""

# Apart from the saga's other rules, for the count goes up with every step: one look at one number.
STEP_COUNT = """
CREATE OR REPLACE TRIGGER ledger_saga_step_count BEFORE UPDATE OF step_count ON ledger_saga
    FOR EACH ROW WHEN (NEW.step_count < 0) EXECUTE FUNCTION ledger_saga_transition();
"""

STEP_WALL = transition_wall(
    *("ledger_step", "step", STEP_TRANSITIONS, STEP_START),
    also=STEP_NEVER,
    columns="state, executed_at, position, revision, alternative, fence, attempts, reclaims",
)
INSTALL = (
    transition_wall(
        *("ledger_saga", "saga", SAGA_TRANSITIONS, [SagaState.RUNNING], "NEW.id"),
        also=SAGA_NEVER,
        columns="state, ended_at, fence, retry_budget, retries_used, pivot_position",
    )
    + STEP_WALL
    + transition_wall(
        *("ledger_idempotencyrecord", "record", RECORD_TRANSITIONS, [RecordState.PENDING]),
        _SAGA_OF_STEP,
    )
    + transition_wall(
        *("ledger_attempt", "attempt", ATTEMPT_TRANSITIONS, [AttemptState.STARTED], _SAGA_OF_STEP),
        also=ATTEMPT_NEVER,
        columns="state, alternative, fence, round",
    )
    + APPEND_ONLY
    + KEPT
    + CHAIN
    + FROZEN_STEP
    + NO_CHANGE_WITHOUT_ENTRY
    + ATTEMPTS
    + WHOLE
    + OUTBOX
    + STEP_COUNT
    + WAKE
    + EXPECT
)

FUNCTIONS = tuple(re.findall(r"CREATE OR REPLACE FUNCTION (\w+)\(", INSTALL + FROZEN))
# Dropping a function with CASCADE drops the triggers that call it, and nothing else.
REMOVE = "\n".join(f"DROP FUNCTION IF EXISTS {name} CASCADE;" for name in FUNCTIONS)
# To be run last, after whatever has made one of the functions anew.
SEAL = sealed("ledger")
