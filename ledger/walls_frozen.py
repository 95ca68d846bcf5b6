"""The walls around what never changes: what a step is and does, and an effect once recorded."""

from __future__ import annotations

from ledger.states import STEP_WITHOUT_EFFECT, Direction, RecordState, StepState
from ledger.walls_sql import REFUSED, changed, quoted

STEP_IDENTITY = (
    *("id", "saga_id", "step_id", "position", "created_at"),
    *("effect_key", "repeat_of_id", "duplicate_of_id"),
)
STEP_ARGS = (
    *("tool", "tool_version_id", "tier", "args_text", "args", "fingerprint"),
    *("idempotency_key", "resource", "alternatives", "former"),
)
STEP_EFFECT = ("executed_at", "executed_seq", "result_text")
SAGA_IDENTITY = ("id", "agent_id", "task_id", "opened_digest", "started_by")
SAGA_HEAD = ("head_seq", "head_hash")
CLAIM_IDENTITY = ("id", "key", "skeleton", "step_id", "claimed_at")
RECORD_IDENTITY = ("key", "step_id", "direction", "fingerprint")
REVISABLE = (StepState.AWAITING_APPROVAL, StepState.CHANGE_REQUESTED)


FROZEN_STEP = f"""
CREATE OR REPLACE FUNCTION ledger_step_frozen() RETURNS trigger LANGUAGE plpgsql AS $wall$
BEGIN
    IF {changed(STEP_IDENTITY)} THEN
        RAISE EXCEPTION 'the identity of step % is frozen', OLD.id USING ERRCODE = '{REFUSED}';
    END IF;
    IF {changed(STEP_ARGS)} AND NOT (
        NEW.revision = OLD.revision + 1 AND OLD.state IN ({quoted(REVISABLE)})
    ) THEN
        RAISE EXCEPTION 'what step % will do is frozen', OLD.id USING ERRCODE = '{REFUSED}';
    END IF;
    RETURN NEW;
END $wall$;
CREATE OR REPLACE FUNCTION ledger_step_recorded() RETURNS trigger LANGUAGE plpgsql AS $wall$
BEGIN
    IF {changed(STEP_EFFECT)} THEN
        RAISE EXCEPTION 'the effect of step % is recorded', OLD.id USING ERRCODE = '{REFUSED}';
    END IF;
    RETURN NEW;
END $wall$;
CREATE OR REPLACE TRIGGER ledger_step_recorded
    BEFORE UPDATE OF {", ".join(STEP_EFFECT)} ON ledger_step
    FOR EACH ROW WHEN (OLD.executed_at IS NOT NULL) EXECUTE FUNCTION ledger_step_recorded();
CREATE OR REPLACE FUNCTION ledger_record_frozen() RETURNS trigger LANGUAGE plpgsql AS $wall$
BEGIN
    IF {changed(RECORD_IDENTITY)}
        OR OLD.state = '{RecordState.EXECUTED}' AND {changed(["state", "response"])} THEN
        RAISE EXCEPTION 'idempotency record % is frozen', OLD.key USING ERRCODE = '{REFUSED}';
    END IF;
    RETURN NEW;
END $wall$;
CREATE OR REPLACE TRIGGER ledger_record_frozen
    BEFORE UPDATE OF {", ".join(RECORD_IDENTITY)} ON ledger_idempotencyrecord
    FOR EACH ROW EXECUTE FUNCTION ledger_record_frozen();
CREATE OR REPLACE TRIGGER ledger_record_spent
    BEFORE UPDATE OF state, response ON ledger_idempotencyrecord
    FOR EACH ROW WHEN (OLD.state = '{RecordState.EXECUTED}')
    EXECUTE FUNCTION ledger_record_frozen();
"""

# A trigger of named columns fires when one of them is set, whatever to: the hot path sets none
# of those that are frozen, and so pays nothing for them. Apart, because a trigger can only name
# columns that are there, and the first migrations of INSTALL know fewer.
FROZEN = f"""
CREATE OR REPLACE TRIGGER ledger_step_frozen
    BEFORE UPDATE OF {", ".join(STEP_IDENTITY + STEP_ARGS)} ON ledger_step
    FOR EACH ROW EXECUTE FUNCTION ledger_step_frozen();
CREATE OR REPLACE FUNCTION ledger_saga_frozen() RETURNS trigger LANGUAGE plpgsql AS $wall$
BEGIN
    IF {changed(SAGA_IDENTITY)} THEN
        RAISE EXCEPTION 'the identity of saga % is frozen', OLD.id USING ERRCODE = '{REFUSED}';
    END IF;
    -- Deeper is the trigger of the entries.
    IF pg_trigger_depth() = 1 AND {changed(SAGA_HEAD)} THEN
        RAISE EXCEPTION 'the head of saga % moves with its entries only', OLD.id
            USING ERRCODE = '{REFUSED}';
    END IF;
    RETURN NEW;
END $wall$;
CREATE OR REPLACE TRIGGER ledger_saga_frozen
    BEFORE UPDATE OF {", ".join(SAGA_IDENTITY)} ON ledger_saga
    FOR EACH ROW EXECUTE FUNCTION ledger_saga_frozen();
CREATE OR REPLACE TRIGGER ledger_saga_head BEFORE UPDATE OF {", ".join(SAGA_HEAD)} ON ledger_saga
    FOR EACH ROW WHEN (pg_trigger_depth() = 0) EXECUTE FUNCTION ledger_saga_frozen();
CREATE OR REPLACE FUNCTION ledger_effectclaim_frozen() RETURNS trigger LANGUAGE plpgsql AS $wall$
DECLARE holder text;
BEGIN
    SELECT state INTO holder FROM ledger_step WHERE id = OLD.step_id;
    IF {changed(CLAIM_IDENTITY)} OR OLD.released_at IS NOT NULL OR NEW.released_at IS NULL
        OR holder NOT IN ({quoted(STEP_WITHOUT_EFFECT)}) THEN
        RAISE EXCEPTION 'the effect % is held by a step that is %', OLD.key, holder
            USING ERRCODE = '{REFUSED}';
    END IF;
    IF EXISTS (SELECT FROM ledger_idempotencyrecord r WHERE r.step_id = OLD.step_id
        AND r.direction = '{Direction.FORWARD}' AND r.state = '{RecordState.PENDING}') THEN
        RAISE EXCEPTION 'the effect % may be there: a promise of its step is open', OLD.key
            USING ERRCODE = '{REFUSED}';
    END IF;
    RETURN NEW;
END $wall$;
CREATE OR REPLACE TRIGGER ledger_effectclaim_frozen BEFORE UPDATE ON ledger_effectclaim
    FOR EACH ROW EXECUTE FUNCTION ledger_effectclaim_frozen();
"""


def sealed(prefix: str) -> str:
    """The functions of one app look names up where they are themselves, and in temporary tables
    last: else a temporary table of a wall's name is what the wall looks into."""
    return rf"""
DO $seal$
DECLARE found record;
BEGIN
    FOR found IN SELECT p.oid::regprocedure AS name, n.nspname AS home
        FROM pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace
        WHERE n.nspname = current_schema() AND p.proname LIKE '{prefix}\_%'
    LOOP
        EXECUTE format('ALTER FUNCTION %s SET search_path = pg_catalog, %I, pg_temp',
            found.name, found.home);
    END LOOP;
END $seal$;
"""
