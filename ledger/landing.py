"""The slot of a step, as a wall: an attempt lands only while its step is to be tried. Pure."""

from __future__ import annotations

from ledger.states import Direction, StepState


def landing(refused: str) -> str:
    """The trigger that refuses any other attempt; `refused` is its SQLSTATE.

    Under a fence that has not been passed: a step that was cancelled before it ever ran has had
    its fence raised, so whoever is late finds the slot taken.
    """
    return f"""
CREATE OR REPLACE FUNCTION ledger_attempt_lands() RETURNS trigger LANGUAGE plpgsql AS $wall$
DECLARE now_is text; fence_is int;
BEGIN
    SELECT state, fence INTO now_is, fence_is FROM ledger_step WHERE id = NEW.step_id;
    IF NOT (CASE WHEN NEW.direction = '{Direction.FORWARD}'
            THEN now_is = '{StepState.QUEUED}' AND NEW.fence > fence_is
                OR now_is = '{StepState.EXECUTING}' AND NEW.fence = fence_is
            ELSE now_is = '{StepState.COMPENSATING}' AND NEW.fence >= fence_is END) THEN
        RAISE EXCEPTION 'no % attempt % can land: step % is % at fence %',
            NEW.direction, NEW.fence, NEW.step_id, now_is, fence_is USING ERRCODE = '{refused}';
    END IF;
    RETURN NEW;
END $wall$;
CREATE OR REPLACE TRIGGER ledger_attempt_lands BEFORE INSERT ON ledger_attempt
    FOR EACH ROW EXECUTE FUNCTION ledger_attempt_lands();
"""  # noqa: S608 - states and a code of ours
