"""The gate's rules that hold whoever connects: SQL for triggers, from the state table.

The one that matters most is `approvals_attempt_allowed`: no attempt of a step that the gate
holds can be written, by any code or by hand, without a standing yes to exactly its arguments
and key. Plain SQL for the reason given in ledger/walls.py.
"""

from __future__ import annotations

from approvals.limits import LONGEST_S
from approvals.states import ANSWERED, STATE_OF, TRANSITIONS, ApprovalState
from approvals.walls_who import BROKEN
from ledger.states import RecordState
from ledger.walls_frozen import sealed
from ledger.walls_sql import REFUSED, kept

BOUND = (
    *("id", "step_id", "saga_id", "direction", "tool", "tool_version", "tool_digest"),
    *("args_text", "args_digest", "idempotency_key", "rule", "policy_digest", "needs"),
    *("lasts", "require_reason", "why", "expires_at", "created_at"),
    *("escalate_to", "remind", "delay", "over_limits"),
)

_EDGES = ",\n        ".join(
    f"('{old}', '{new}')" for old, targets in sorted(TRANSITIONS.items()) for new in sorted(targets)
)
_ANSWER_OF = " ".join(f"WHEN '{state}' THEN '{answer}'" for answer, state in STATE_OF.items())
_ANSWERED = ", ".join(f"'{state}'" for state in sorted(ANSWERED))


def _row(prefix: str) -> str:
    return "(" + ", ".join(f"{prefix}.{column}" for column in BOUND) + ")"


TRANSITION = f"""
CREATE OR REPLACE FUNCTION approvals_approval_transition() RETURNS trigger
LANGUAGE plpgsql AS $wall$
BEGIN
    IF TG_OP = 'INSERT' THEN
        IF NEW.state <> '{ApprovalState.PENDING}' AND NOT ledger_is_returning(NEW.saga_id) THEN
            RAISE EXCEPTION 'a request cannot begin as %', NEW.state USING ERRCODE = '{REFUSED}';
        END IF;
    ELSIF (OLD.state, NEW.state) NOT IN (
        {_EDGES}
    ) THEN
        RAISE EXCEPTION 'a request cannot go from % to %', OLD.state, NEW.state
            USING ERRCODE = '{REFUSED}';
    ELSIF OLD.used_at IS NOT NULL AND NEW.state <> '{ApprovalState.SUPERSEDED}' THEN
        RAISE EXCEPTION 'the yes of request % was used up; it cannot become %', OLD.id, NEW.state
            USING ERRCODE = '{REFUSED}';
    END IF;
    RETURN NEW;
END $wall$;
CREATE OR REPLACE TRIGGER approvals_approval_begins BEFORE INSERT ON approvals_approval
    FOR EACH ROW EXECUTE FUNCTION approvals_approval_transition();
CREATE OR REPLACE TRIGGER approvals_approval_transition BEFORE UPDATE OF state
    ON approvals_approval FOR EACH ROW WHEN (OLD.state IS DISTINCT FROM NEW.state)
    EXECUTE FUNCTION approvals_approval_transition();
"""

FROZEN = f"""
CREATE OR REPLACE FUNCTION approvals_approval_frozen() RETURNS trigger LANGUAGE plpgsql AS $wall$
BEGIN
    IF {_row("OLD")} IS DISTINCT FROM {_row("NEW")} THEN
        RAISE EXCEPTION 'what request % asks is frozen', OLD.id USING ERRCODE = '{REFUSED}';
    END IF;
    IF (OLD.used_at IS NOT NULL AND NEW.used_at IS DISTINCT FROM OLD.used_at)
        OR (OLD.yes_until IS NOT NULL AND NEW.yes_until IS DISTINCT FROM OLD.yes_until)
        OR (OLD.runs_from IS NOT NULL AND NEW.runs_from IS DISTINCT FROM OLD.runs_from) THEN
        RAISE EXCEPTION 'the yes of request % is written once', OLD.id
            USING ERRCODE = '{REFUSED}';
    END IF;
    RETURN NEW;
END $wall$;
CREATE OR REPLACE TRIGGER approvals_approval_frozen BEFORE UPDATE ON approvals_approval
    FOR EACH ROW EXECUTE FUNCTION approvals_approval_frozen();
"""

KEPT = f"""
CREATE OR REPLACE FUNCTION approvals_kept() RETURNS trigger LANGUAGE plpgsql AS $wall$
DECLARE gone jsonb;
BEGIN
    IF TG_OP = 'DELETE' THEN
        gone := to_jsonb(OLD);
        IF ledger_is_leaving(coalesce((gone ->> 'saga_id')::uuid, (SELECT saga_id
            FROM approvals_approval WHERE id = (gone ->> 'approval_id')::uuid))) THEN
            RETURN OLD;
        END IF;
    END IF;
    RAISE EXCEPTION '% keeps its rows: % is refused', TG_TABLE_NAME, TG_OP
        USING ERRCODE = '{REFUSED}';
END $wall$;
{kept("approvals_approval", "approvals_kept")}
CREATE OR REPLACE TRIGGER approvals_decision_no_change BEFORE UPDATE OR DELETE
    ON approvals_decision FOR EACH ROW EXECUTE FUNCTION approvals_kept();
CREATE OR REPLACE TRIGGER approvals_decision_no_truncate BEFORE TRUNCATE ON approvals_decision
    FOR EACH STATEMENT EXECUTE FUNCTION approvals_kept();
"""

# An answered state says that people answered; checked at COMMIT, so order does not matter.
ANSWERED_BY_PEOPLE = f"""
CREATE OR REPLACE FUNCTION approvals_approval_answered() RETURNS trigger
LANGUAGE plpgsql AS $wall$
DECLARE given bigint; needed bigint;
BEGIN
    SELECT count(DISTINCT d.user_id) INTO given FROM approvals_decision d
        WHERE d.approval_id = NEW.id AND d.args_digest = NEW.args_digest
        AND d.answer = CASE NEW.state {_ANSWER_OF} END;
    SELECT CASE NEW.state WHEN '{ApprovalState.APPROVED}' THEN sum((n ->> 'count')::int) ELSE 1 END
        INTO needed FROM jsonb_array_elements(NEW.needs) n;
    IF {BROKEN} THEN
        RETURN NULL;
    END IF;
    IF needed IS NULL OR given < needed THEN  -- no needs at all: nobody can have said yes
        RAISE EXCEPTION 'request % is % without the decisions of people', NEW.id, NEW.state
            USING ERRCODE = '{REFUSED}';
    END IF;
    RETURN NULL;
END $wall$;
DROP TRIGGER IF EXISTS approvals_approval_answered ON approvals_approval;
CREATE CONSTRAINT TRIGGER approvals_approval_answered AFTER UPDATE OF state ON approvals_approval
    DEFERRABLE INITIALLY DEFERRED FOR EACH ROW WHEN (NEW.state IN ({_ANSWERED}))
    EXECUTE FUNCTION approvals_approval_answered();
"""

# What the gate held stays held: otherwise one UPDATE of `verdict` would be the way round it.
STAYS_HELD = f"""
CREATE OR REPLACE FUNCTION approvals_step_stays_held() RETURNS trigger LANGUAGE plpgsql AS $wall$
BEGIN
    RAISE EXCEPTION 'the verdict on step % is taken', OLD.id USING ERRCODE = '{REFUSED}';
END $wall$;
CREATE OR REPLACE TRIGGER approvals_step_stays_held BEFORE UPDATE OF verdict ON ledger_step
    FOR EACH ROW WHEN (OLD.verdict <> 'allow' AND NEW.verdict IS DISTINCT FROM OLD.verdict)
    EXECUTE FUNCTION approvals_step_stays_held();
"""

# A step is held when its verdict says so, or when people were ever asked about exactly this
# run (an undo, an alternative, a repeat after a changed tool). The digest is computed here,
# over the text that a worker runs. The yes is used up by the attempt that starts under it;
# certain failures are tried again under the same one.
ATTEMPT = f"""
CREATE OR REPLACE FUNCTION approvals_attempt_allowed() RETURNS trigger LANGUAGE plpgsql AS $wall$
DECLARE held boolean; runs text;
BEGIN
    SELECT NEW.direction = 'forward' AND NEW.alternative = 0 AND s.verdict <> 'allow'
            OR EXISTS (SELECT 1 FROM approvals_approval a WHERE a.step_id = NEW.step_id
                AND a.direction = NEW.direction AND a.idempotency_key = NEW.idempotency_key),
        CASE WHEN NEW.alternative = 0 THEN s.args_text
            ELSE s.alternatives -> (NEW.alternative - 1) ->> 'args_text' END
        INTO held, runs FROM ledger_step s WHERE s.id = NEW.step_id;
    IF held IS NOT TRUE OR NEW.state <> 'started' AND ledger_is_returning(
        (SELECT saga_id FROM ledger_step WHERE id = NEW.step_id)) THEN
        RETURN NEW;
    END IF;
    UPDATE approvals_approval SET used_at = coalesce(used_at, clock_timestamp())
        WHERE step_id = NEW.step_id AND direction = NEW.direction
        AND state = '{ApprovalState.APPROVED}' AND yes_until > clock_timestamp()
        AND coalesce(runs_from, decided_at) <= clock_timestamp()
        AND idempotency_key = NEW.idempotency_key
        AND args_digest = encode(sha256(convert_to(runs, 'UTF8')), 'hex');
    IF NOT FOUND THEN
        RAISE EXCEPTION 'nobody has approved exactly this % run of step %',
            NEW.direction, NEW.step_id USING ERRCODE = '{REFUSED}';
    END IF;
    RETURN NEW;
END $wall$;
CREATE OR REPLACE TRIGGER approvals_attempt_allowed BEFORE INSERT ON ledger_attempt
    FOR EACH ROW EXECUTE FUNCTION approvals_attempt_allowed();
"""

# What was taken of a limit is given back by one fact alone: the record of the run's key says that
# it certainly had no effect. Unknown, executed, or nobody knows: it stays taken. A row may go when
# it counts for nothing any more: given back, or older than any window and of a step that has left.
GIVEN_BACK = f"""
CREATE OR REPLACE FUNCTION approvals_limit_given_back() RETURNS trigger LANGUAGE plpgsql AS $wall$
BEGIN
    IF NEW.state = '{RecordState.FAILED}' AND OLD.state <> '{RecordState.FAILED}' THEN
        UPDATE approvals_reservation SET returned_at = clock_timestamp()
            WHERE idempotency_key = NEW.key AND returned_at IS NULL;
    END IF;
    RETURN NULL;
END $wall$;
CREATE OR REPLACE TRIGGER approvals_limit_given_back AFTER UPDATE OF state
    ON ledger_idempotencyrecord FOR EACH ROW EXECUTE FUNCTION approvals_limit_given_back();
CREATE OR REPLACE FUNCTION approvals_reservation_kept() RETURNS trigger LANGUAGE plpgsql AS $wall$
BEGIN
    IF (OLD.id, OLD.limit_name, OLD.share, OLD.step_id, OLD.idempotency_key, OLD.amount,
            OLD.reserved_at) IS DISTINCT FROM
        (NEW.id, NEW.limit_name, NEW.share, NEW.step_id, NEW.idempotency_key, NEW.amount,
            NEW.reserved_at)
        OR OLD.returned_at IS NOT NULL
        OR NOT EXISTS (SELECT 1 FROM ledger_idempotencyrecord r
            WHERE r.key = NEW.idempotency_key AND r.state = '{RecordState.FAILED}') THEN
        RAISE EXCEPTION 'what run % took of a limit stays taken', OLD.idempotency_key
            USING ERRCODE = '{REFUSED}';
    END IF;
    RETURN NEW;
END $wall$;
CREATE OR REPLACE TRIGGER approvals_reservation_kept BEFORE UPDATE ON approvals_reservation
    FOR EACH ROW EXECUTE FUNCTION approvals_reservation_kept();
CREATE OR REPLACE FUNCTION approvals_reservation_counts() RETURNS trigger
LANGUAGE plpgsql AS $wall$
BEGIN
    IF OLD.returned_at IS NOT NULL OR OLD.reserved_at < clock_timestamp() - interval '{LONGEST_S} s'
        AND NOT EXISTS (SELECT FROM ledger_step WHERE id = OLD.step_id) THEN
        RETURN OLD;
    END IF;
    RAISE EXCEPTION 'what run % took of a limit may still count: DELETE is refused',
        OLD.idempotency_key USING ERRCODE = '{REFUSED}';
END $wall$;
CREATE OR REPLACE TRIGGER approvals_reservation_no_delete BEFORE DELETE ON approvals_reservation
    FOR EACH ROW EXECUTE FUNCTION approvals_reservation_counts();
CREATE OR REPLACE TRIGGER approvals_reservation_no_truncate BEFORE TRUNCATE
    ON approvals_reservation FOR EACH STATEMENT EXECUTE FUNCTION approvals_kept();
"""

# A saga leaves with its requests (ledger/doors), and with none that still waits.
NOTHING_OPEN = f"""
CREATE OR REPLACE FUNCTION approvals_nothing_open() RETURNS trigger LANGUAGE plpgsql AS $wall$
BEGIN
    IF EXISTS (SELECT FROM approvals_approval
        WHERE saga_id = NEW.saga_id AND state = '{ApprovalState.PENDING}') THEN
        RAISE EXCEPTION 'saga % cannot be archived: a request of it waits', NEW.saga_id
            USING ERRCODE = '{REFUSED}';
    END IF;
    RETURN NEW;
END $wall$;
CREATE OR REPLACE TRIGGER approvals_nothing_open BEFORE INSERT ON ledger_tombstone
    FOR EACH ROW EXECUTE FUNCTION approvals_nothing_open();
"""

INSTALL = TRANSITION + FROZEN + KEPT + ANSWERED_BY_PEOPLE + STAYS_HELD + ATTEMPT
# On a table that came later than the rest: the migration of the doors adds it.
DOOR = NOTHING_OPEN
# So do reservations.
LIMITS = GIVEN_BACK
OF_LIMITS = (
    "approvals_limit_given_back",
    "approvals_reservation_kept",
    "approvals_reservation_counts",
)
FUNCTIONS = (
    "approvals_approval_transition",
    "approvals_approval_frozen",
    "approvals_kept",
    "approvals_approval_answered",
    "approvals_step_stays_held",
    "approvals_attempt_allowed",
    "approvals_nothing_open",
    *OF_LIMITS,
)
# Dropping a function with CASCADE drops the triggers that call it, and nothing else.
REMOVE = "\n".join(f"DROP FUNCTION IF EXISTS {name}() CASCADE;" for name in FUNCTIONS)
REMOVE_LIMITS = "\n".join(f"DROP FUNCTION IF EXISTS {name}() CASCADE;" for name in OF_LIMITS)
# To be run last, after whatever has made one of the functions anew.
SEAL = sealed("approvals")
