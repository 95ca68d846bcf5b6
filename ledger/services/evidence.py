"""Late answers: they come when nobody waits for them any more, and what they say stays true.

A late answer by itself changes no state (design rule 5.5): it is given to whoever finds out.
One that says "done" about a step that is waiting to run once more keeps it from running; one
that contradicts what is settled is shown to a person, because nothing else can be done.
"""

from __future__ import annotations

import json
from typing import Any

from ledger import storage
from ledger.gate import gate
from ledger.rows import SagaRow, StepRow
from ledger.services import forward
from ledger.services.attempts import is_out, settle_attempts_in_doubt
from ledger.services.looking import is_open, settle_by_evidence
from ledger.services.reconciling import hold_for_operator
from ledger.services.settling import commit, undone
from ledger.services.testimony import (
    LateDone,
    believe,
    contradict,
    is_about,
    late_done,
    tell_second_effect,
)
from ledger.services.unit import Unit
from ledger.states import SAGA_ENDED, STEP_FINISHED, Direction, RecordState, StepState

_WILL_RUN = frozenset(
    {StepState.QUEUED, StepState.AWAITING_APPROVAL, StepState.CHANGE_REQUESTED, StepState.STUCK}
)
# Postgres compares, as it keeps them: 1e23 comes back from it as a whole number.
_KEEP_LATE = """
UPDATE ledger_attempt SET late = %(text)s::jsonb
WHERE id = %(attempt)s AND outcome IS DISTINCT FROM %(text)s::jsonb
    AND late IS DISTINCT FROM %(text)s::jsonb
"""
# Messages that the evidence has answered.
_DROP = """
UPDATE ledger_outboxmessage SET taken_at = coalesce(taken_at, clock_timestamp()),
    lease_until = NULL
WHERE step_id = %s AND taken_at IS NULL
"""


def hear(unit: Unit, step: StepRow, direction: Direction, attempt: Any, text: str) -> None:
    """Keep what an attempt says too late, once, and do what follows. `text`: as `told` gives it.

    Too late to change a state, never too late to be known (design rule 5.5).
    """
    if not storage.execute(_KEEP_LATE, {"text": text, "attempt": attempt.id}):
        return
    evidence = json.loads(text)
    saga = unit.sagas[step.saga_id]
    unit.entry(saga, "attempt.late", step, direction=direction, fence=attempt.fence, **evidence)
    heed(unit, saga, step, direction, attempt, evidence["outcome"])


def heed(
    unit: Unit, saga: SagaRow, step: StepRow, direction: Direction, attempt: Any, outcome: str
) -> None:
    """What follows from an `attempt.late` that was just recorded."""
    if is_open(step, direction):
        if saga.state not in SAGA_ENDED:
            unit.send(step, "probe", direction)
        elif outcome == "done":
            # Nobody looks there any more, so its own word is all that will be known of it.
            settle_by_evidence(unit, saga, step, direction, None)
        return
    late = late_done(step, direction) if outcome == "done" else None
    if late is None:
        return
    if direction == Direction.FORWARD:
        _heed_effect(unit, saga, step, attempt, late)
    elif step.state in {StepState.COMPENSATING, StepState.STUCK}:
        if not is_out(step.id):
            storage.execute(_DROP, [step.id])
            gate().close([step.id], "a late answer says that it happened")
            believe(saga, step, direction, late)
            settle_attempts_in_doubt(step.id, direction, RecordState.EXECUTED)
            undone(unit, saga, step, direction, late.result, how="late answer")
    elif step.state == StepState.COMMITTED and step.residue:
        contradict(unit, saga, step, f"A late answer says that its {direction} happened.")
    elif step.state in {StepState.COMPENSATED, StepState.CORRECTED}:
        _tell(unit, saga, step, direction, attempt)


def _tell(unit: Unit, saga: SagaRow, step: StepRow, direction: Direction, attempt: Any) -> None:
    """Another attempt may have ended in this very batch: it is written before it is looked for."""
    unit.flush()
    key, fence = attempt.idempotency_key, attempt.fence
    tell_second_effect(unit, saga, step, direction, key=key, fence=fence)


def _heed_effect(unit: Unit, saga: SagaRow, step: StepRow, attempt: Any, late: LateDone) -> None:
    if step.executed_seq is not None:
        _tell(unit, saga, step, Direction.FORWARD, attempt)
    elif step.state in _WILL_RUN:
        _keep_from_running(unit, saga, step, late)
    elif step.state in STEP_FINISHED:
        if is_about(step, Direction.FORWARD, late):
            gave_up_at = step.alternative
            believe(saga, step, Direction.FORWARD, late)
            step.alternative = gave_up_at
        step.residue = True
        why = "A late answer says that it happened, after it was settled that it had not."
        contradict(unit, saga, step, f"{why} Nobody undoes it: look at the target.")


def _keep_from_running(unit: Unit, saga: SagaRow, step: StepRow, late: LateDone) -> None:
    """It waits to run once more, and it has happened: it must not run."""
    why = "A late answer says that it happened."
    storage.execute(_DROP, [step.id])
    gate().close([step.id], why)
    step.fence += 1
    if step.state in {StepState.AWAITING_APPROVAL, StepState.CHANGE_REQUESTED}:
        unit.move(step, StepState.QUEUED, "step.queued", why=why)
    if step.state == StepState.QUEUED:
        unit.move(step, StepState.STUCK, "step.stuck", why=why)
    unit.free(step)
    forward.resume(unit, saga)  # its agent is asked for no other version any more
    if is_about(step, Direction.FORWARD, late):
        believe(saga, step, Direction.FORWARD, late)
        settle_attempts_in_doubt(step.id, Direction.FORWARD, RecordState.EXECUTED)
        commit(unit, saga, step, late.result, how="late answer")
        return
    why = "A late answer says that an earlier version of it happened, before it was edited."
    hold_for_operator(unit, saga, step, f"{why} Look at the target, then answer.")
