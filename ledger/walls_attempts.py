"""The slot of a step, as a wall: an attempt lands only while its step is to be tried, and ends
once.

Under a fence that has not been passed: a step that was cancelled before it ever ran has had its
fence raised, so whoever is late finds the slot taken. Pure.
"""

from __future__ import annotations

from ledger.states import ATTEMPT_TRANSITIONS, AttemptState, Direction, StepState
from ledger.walls_sql import REFUSED, changed, edges, never, quoted

# What landed is what was looked at as it landed: another step, key or direction is another attempt.
_INTENT = (
    *("id", "step_id", "direction", "alternative", "fence", "token", "idempotency_key"),
    *("shift_id", "round"),
)
_COUNTS = never("attempt", "counts", "least(NEW.alternative, NEW.fence, NEW.round) < 0")
_ENDED = quoted(set(AttemptState) - {AttemptState.STARTED})

ATTEMPTS = f"""
CREATE OR REPLACE FUNCTION ledger_attempt_lands() RETURNS trigger LANGUAGE plpgsql AS $wall$
DECLARE now_is text; fence_is int; of_saga uuid;
BEGIN
    SELECT state, fence, saga_id INTO now_is, fence_is, of_saga
        FROM ledger_step WHERE id = NEW.step_id;
    IF NEW.state <> '{AttemptState.STARTED}' THEN
        -- One that ended long ago, of a saga that comes back from an export (ledger/doors).
        IF NEW.state NOT IN ({_ENDED}) OR ledger_is_returning(of_saga) IS NOT TRUE THEN
            RAISE EXCEPTION 'an attempt cannot begin as %', NEW.state USING ERRCODE = '{REFUSED}';
        END IF;
    ELSIF (CASE WHEN NEW.direction = '{Direction.FORWARD}'
            THEN now_is = '{StepState.QUEUED}' AND NEW.fence > fence_is
                OR now_is = '{StepState.EXECUTING}' AND NEW.fence = fence_is
            ELSE now_is = '{StepState.COMPENSATING}' AND NEW.fence >= fence_is END) IS NOT TRUE
    THEN
        RAISE EXCEPTION 'no % attempt % can land: step % is % at fence %',
            NEW.direction, NEW.fence, NEW.step_id, now_is, fence_is USING ERRCODE = '{REFUSED}';
    END IF;{_COUNTS}
    RETURN NEW;
END $wall$;
CREATE OR REPLACE TRIGGER ledger_attempt_lands BEFORE INSERT ON ledger_attempt
    FOR EACH ROW EXECUTE FUNCTION ledger_attempt_lands();
CREATE OR REPLACE FUNCTION ledger_attempt_ends() RETURNS trigger LANGUAGE plpgsql AS $wall$
BEGIN
    IF OLD.state <> NEW.state AND OLD.state || '>' || NEW.state <> ALL (
        {edges(ATTEMPT_TRANSITIONS)})
    THEN
        RAISE EXCEPTION 'an attempt cannot go from % to %', OLD.state, NEW.state
            USING ERRCODE = '{REFUSED}';
    END IF;
    RETURN NEW;
END $wall$;
CREATE OR REPLACE TRIGGER ledger_attempt_ends BEFORE UPDATE OF state ON ledger_attempt
    FOR EACH ROW EXECUTE FUNCTION ledger_attempt_ends();
CREATE OR REPLACE FUNCTION ledger_attempt_frozen() RETURNS trigger LANGUAGE plpgsql AS $wall$
BEGIN
    IF {changed(_INTENT)} THEN
        RAISE EXCEPTION 'the intent of attempt % is frozen', OLD.id USING ERRCODE = '{REFUSED}';
    END IF;
    RETURN NEW;
END $wall$;
CREATE OR REPLACE TRIGGER ledger_attempt_frozen BEFORE UPDATE OF {", ".join(_INTENT)}
    ON ledger_attempt FOR EACH ROW EXECUTE FUNCTION ledger_attempt_frozen();
"""
