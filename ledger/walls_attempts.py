"""The slot of a step, as a wall: an attempt lands only while its step is to be tried, and stays.

Under a fence that has not been passed: a step that was cancelled before it ever ran has had its
fence raised, so whoever is late finds the slot taken. Pure.
"""

from __future__ import annotations

from ledger.states import AttemptState, Direction, StepState
from ledger.walls_sql import REFUSED, changed

# What landed is what was looked at as it landed: another step, key or direction is another attempt.
_INTENT = (
    *("id", "step_id", "direction", "alternative", "fence", "token", "idempotency_key"),
    *("shift_id", "round"),
)

# One that begins as ended comes back with its saga (`ledger_attempt_begins`), and runs no more.
ATTEMPTS = f"""
CREATE OR REPLACE FUNCTION ledger_attempt_lands() RETURNS trigger LANGUAGE plpgsql AS $wall$
DECLARE now_is text; fence_is int;
BEGIN
    SELECT state, fence INTO now_is, fence_is FROM ledger_step WHERE id = NEW.step_id;
    IF NEW.state = '{AttemptState.STARTED}' AND (CASE WHEN NEW.direction = '{Direction.FORWARD}'
            THEN now_is = '{StepState.QUEUED}' AND NEW.fence > fence_is
                OR now_is = '{StepState.EXECUTING}' AND NEW.fence = fence_is
            ELSE now_is = '{StepState.COMPENSATING}' AND NEW.fence >= fence_is END) IS NOT TRUE
    THEN
        RAISE EXCEPTION 'no % attempt % can land: step % is % at fence %',
            NEW.direction, NEW.fence, NEW.step_id, now_is, fence_is USING ERRCODE = '{REFUSED}';
    END IF;
    RETURN NEW;
END $wall$;
CREATE OR REPLACE TRIGGER ledger_attempt_lands BEFORE INSERT ON ledger_attempt
    FOR EACH ROW EXECUTE FUNCTION ledger_attempt_lands();
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
