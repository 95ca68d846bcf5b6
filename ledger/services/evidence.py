"""Late answers: they come when nobody waits for them any more, and what they say stays true.

A late answer by itself changes no state (design rule 5.5): it is given to whoever finds out.
One that says "done" about a step that is waiting to run once more keeps it from running; one
that contradicts what is settled is shown to a person, because nothing else can be done.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ledger import storage
from ledger.gate import Leaving, gate
from ledger.rows import SagaRow, StepRow
from ledger.services.asking import key_for
from ledger.services.attempts import settle_attempts_in_doubt, spend_key
from ledger.services.looking import is_open
from ledger.services.reconciling import hold_for_operator
from ledger.services.settling import commit, undone
from ledger.services.tooling import recorded_tool
from ledger.services.unit import Unit
from ledger.states import STEP_FINISHED, Direction, RecordState, StepState

_WILL_RUN = frozenset(
    {StepState.QUEUED, StepState.AWAITING_APPROVAL, StepState.CHANGE_REQUESTED, StepState.STUCK}
)
_DONE = """
SELECT alternative, idempotency_key, late FROM ledger_attempt
WHERE step_id = %s AND direction = %s AND late ->> 'outcome' = 'done' ORDER BY fence DESC LIMIT 1
"""
_IN_FLIGHT = "SELECT 1 FROM ledger_attempt WHERE step_id = %s AND state = 'started' LIMIT 1"
_DONE_LATER = """
SELECT 1 FROM ledger_attempt
WHERE step_id = %s AND direction = %s AND state = 'done' AND fence > %s LIMIT 1
"""
# Messages that the evidence has answered.
_DROP = """
UPDATE ledger_outboxmessage SET taken_at = coalesce(taken_at, clock_timestamp()),
    lease_until = NULL
WHERE step_id = %s AND taken_at IS NULL
"""


@dataclass(frozen=True, slots=True)
class LateDone:
    """What an attempt said after its time: which choice of the step, and its result."""

    alternative: int
    idempotency_key: str
    result: Any


def late_done(step: StepRow, direction: Direction) -> LateDone | None:
    """The newest late "done" about this direction of a step, if there is one."""
    found = storage.row(_DONE, [step.id, direction])
    if found is None:
        return None
    return LateDone(found.alternative, found.idempotency_key, found.late.get("result"))


def is_about(step: StepRow, direction: Direction, late: LateDone) -> bool:
    """Whether it speaks of one of the step's present choices, not of a version since edited."""
    was = step.alternative
    step.alternative = late.alternative
    same = key_for(step, direction) == late.idempotency_key
    step.alternative = was
    return same


def believe(saga: SagaRow, step: StepRow, direction: Direction, late: LateDone) -> None:
    """It has happened by this choice of the step: the key is spent, and limits count it.

    Somebody may have settled before that it had not, and what it took was given back.
    """
    if direction == Direction.FORWARD:
        step.alternative = late.alternative
    spend_key(step, direction, late.result, how="late answer")
    if direction == Direction.FORWARD:
        variant = step.variant
        ran = Leaving(step.id, variant.tool, saga.agent, variant.args, late.idempotency_key)
        gate().count([ran])


def heed(
    unit: Unit, saga: SagaRow, step: StepRow, direction: Direction, attempt: Any, outcome: str
) -> None:
    """What follows from an `attempt.late` that was just recorded."""
    if is_open(step, direction):
        unit.send(step, "probe", direction)
        return
    late = late_done(step, direction) if outcome == "done" else None
    if late is None:
        return
    if direction == Direction.FORWARD:
        _heed_effect(unit, saga, step, attempt, late)
    elif step.state in {StepState.COMPENSATING, StepState.STUCK}:
        if storage.row(_IN_FLIGHT, [step.id]) is None:
            storage.execute(_DROP, [step.id])
            gate().close([step.id], "a late answer says that it happened")
            believe(saga, step, direction, late)
            settle_attempts_in_doubt(step.id, direction, RecordState.EXECUTED)
            undone(unit, saga, step, direction, late.result, how="late answer")
    elif step.state == StepState.COMMITTED and step.residue:
        _contradict(unit, saga, step, f"A late answer says that its {direction} happened.")


def _heed_effect(unit: Unit, saga: SagaRow, step: StepRow, attempt: Any, late: LateDone) -> None:
    if step.executed_seq is not None:
        _heed_second_effect(unit, saga, step, attempt)
    elif step.state in _WILL_RUN:
        _keep_from_running(unit, saga, step, late)
    elif step.state in STEP_FINISHED:
        if is_about(step, Direction.FORWARD, late):
            gave_up_at = step.alternative
            believe(saga, step, Direction.FORWARD, late)
            step.alternative = gave_up_at
        step.residue = True
        why = "A late answer says that it happened, after it was settled that it had not."
        _contradict(unit, saga, step, f"{why} Nobody undoes it: look at the target.")


def _heed_second_effect(unit: Unit, saga: SagaRow, step: StepRow, attempt: Any) -> None:
    """Two attempts say "done": at a target that does not dedupe, that is two effects."""
    tool = recorded_tool(step.variant)
    if tool is not None and tool.downstream_idempotent:
        return
    if storage.row(_DONE_LATER, [step.id, Direction.FORWARD, attempt.fence]) is not None:
        why = "Two of its attempts say that they were carried out. Look at the target for both."
        _contradict(unit, saga, step, why)


def _contradict(unit: Unit, saga: SagaRow, step: StepRow, why: str) -> None:
    """Nothing can be settled by this: it is shown until a person has seen to it."""
    if step.state in STEP_FINISHED:
        step.held_why = why
    step.dirty = True
    unit.entry(saga, "step.contradicted", step, why=why)


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
    if is_about(step, Direction.FORWARD, late):
        believe(saga, step, Direction.FORWARD, late)
        settle_attempts_in_doubt(step.id, Direction.FORWARD, RecordState.EXECUTED)
        commit(unit, saga, step, late.result, how="late answer")
        return
    why = "A late answer says that an earlier version of it happened, before it was edited."
    hold_for_operator(unit, saga, step, f"{why} Look at the target, then answer.")
