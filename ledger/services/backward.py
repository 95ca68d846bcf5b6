"""Going back: strictly in the reverse order of recorded execution, one step at a time.

Nothing here calls out. Each function moves rows of a locked saga and leaves the messages
that want the next attempt (design rules 5.10 and 5.11).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ledger import storage
from ledger.doubt import has_open_doubt, may_have_happened
from ledger.gate import gate
from ledger.rows import SagaRow, StepRow
from ledger.services.asking import ask, judge, key_for
from ledger.services.reconciling import hold_doubt
from ledger.services.tooling import can_correct
from ledger.services.unit import Unit
from ledger.states import (
    STEP_NOT_STARTED,
    Direction,
    SagaState,
    StepState,
    Tier,
)

# In these, what a step is held for is a question to a person, or work that only one can do.
_FOR_A_PERSON = frozenset({StepState.UNKNOWN, StepState.STUCK})
STILL_WANTED = """
UPDATE ledger_outboxmessage SET saga_fence = %s
WHERE step_id = %s AND kind = 'run' AND direction = 'forward' AND taken_at IS NULL
"""
_WAITS = """
SELECT payload::jsonb ->> 'why' AS why, payload::jsonb ->> 'cause' AS cause FROM ledger_entry
WHERE saga_id = %s AND kind = 'saga.turn_waits' ORDER BY seq LIMIT 1
"""


def turn(unit: Unit, saga: SagaRow, why: str, *, cause: str) -> None:
    """Turn a saga round that has not reached its pivot; while that is in doubt, not yet.

    What the pivot comes to decides then: the saga goes on if it happened, and turns back for the
    reason that was told first if it did not.
    """
    if pivot_in_doubt(unit, saga):
        unit.entry(saga, "saga.turn_waits", why=why, cause=cause)
    elif first := _turn_that_waits(saga):
        begin(unit, saga, first.why, cause=first.cause)
    else:
        begin(unit, saga, why, cause=cause)


def pivot_in_doubt(unit: Unit, saga: SagaRow) -> bool:
    """Whether the saga's pivot may have happened or be happening now: until that is known, the
    saga goes neither back nor forward (design rule 5.11)."""
    steps = unit.read_saga_steps(saga)
    return any(may_have_happened(step) and step.variant.tier == Tier.PIVOT for step in steps)


def goes_back(saga: SagaRow) -> bool:
    """Whether a saga has turned back, or does unless its pivot turns out to have happened."""
    if saga.ended_backward_why or saga.is_past_pivot:
        return bool(saga.ended_backward_why)
    return _turn_that_waits(saga) is not None


def _turn_that_waits(saga: SagaRow) -> Any | None:
    """The `why` and `cause` of the first turn that waited for the pivot's outcome."""
    return storage.row(_WAITS, [saga.id])


def begin(unit: Unit, saga: SagaRow, why: str, *, cause: str = "") -> None:
    """Turn a saga round now. Its fence rises, so no forward message of before still counts."""
    steps = unit.read_saga_steps(saga)
    saga.fence += 1
    saga.ended_backward_why = why
    unit.move_saga(saga, SagaState.COMPENSATING, "saga.compensating", why=why, cause=cause)
    _cancel_not_started(unit, steps)
    advance(unit, saga)
    _say_who_waits(unit, saga, steps)


def _say_who_waits(unit: Unit, saga: SagaRow, steps: Sequence[StepRow]) -> None:
    """A saga that turned back while one of its steps waited for a person waits for that still."""
    held = (s for s in steps if s.held_why and s.state in _FOR_A_PERSON and not s.residue)
    if saga.state == SagaState.COMPENSATING and (step := next(held, None)):
        unit.move_saga(saga, SagaState.STUCK, "saga.stuck", step=step.step_id, why=step.held_why)


def _cancel_not_started(unit: Unit, steps: Sequence[StepRow]) -> None:
    """A step without an intent is undone by taking its slot: a recorded no-op.

    Its fence has risen and its state is final, so the database refuses the attempt of whoever
    is late (`ledger_attempt_lands`).
    """
    idle = [s for s in steps if s.state in STEP_NOT_STARTED and not has_open_doubt(s)]
    for step in idle:
        step.fence += 1
        step.held_why = ""
        unit.move(
            step,
            StepState.CANCELLED,
            "step.cancelled",
            why="the saga turned back",
            undo="nothing to undo",
            fence=step.fence,
        )
        unit.free(step)
    gate().close([step.id for step in idle], "the saga turned back")
    for step in steps:
        if step.state not in STEP_NOT_STARTED or not has_open_doubt(step):
            continue
        saga = unit.sagas[step.saga_id]
        if step.state == StepState.QUEUED:
            # It is the way to find out, so it is wanted still, under the saga's new fence.
            storage.execute(STILL_WANTED, [saga.fence, step.id])
        else:
            hold_doubt(unit, saga, step, Direction.FORWARD, "the saga turned back.")


def advance(unit: Unit, saga: SagaRow) -> None:
    """Start the next undo, if the one before it is finished; end the saga after the last."""
    if saga.state != SagaState.COMPENSATING:
        return
    steps = unit.read_saga_steps(saga)
    if any(may_have_happened(step) and not step.residue for step in steps):
        return
    if any(step.state in {StepState.COMPENSATING, StepState.STUCK} for step in steps):
        return
    for step in _still_to_undo(steps):
        if _start_undo(unit, saga, step):
            return
    if saga.was != saga.state:
        # Nothing to undo: the turn is written before the end, for no edge leads past it.
        unit.flush()
    unit.move_saga(saga, SagaState.COMPENSATED, "saga.compensated", residue=_residue(unit, saga))


def _still_to_undo(steps: Sequence[StepRow]) -> list[StepRow]:
    """Committed steps that nobody has tried to undo yet, the last one first.

    Past a pivot, and of several the last, only what came after it can go back (an operator ended
    the saga there).
    """
    happened = [step for step in steps if step.executed_seq is not None]
    pivots = [step.position for step in happened if step.variant.tier == Tier.PIVOT]
    floor = max(pivots, default=0)
    done = [step for step in steps if step.state == StepState.COMMITTED and not step.residue]
    for step in done:
        if step.position <= floor:
            step.residue = True
            step.dirty = True
    undone = [step for step in done if step.position > floor]
    return sorted(undone, key=lambda step: step.executed_seq or 0, reverse=True)


def _start_undo(unit: Unit, saga: SagaRow, step: StepRow) -> bool:
    """True when the step's undo is now under way; False when it stays as residue."""
    direction = undo_direction(step)
    if direction is None:
        leave_as_residue(unit, saga, step, "it cannot be undone and has no correction")
        return False
    unit.move(
        step,
        StepState.COMPENSATING,
        f"step.{GERUND[direction]}",
        direction=direction,
        idempotency_key=key_for(step, direction),
    )
    ask_or_send(unit, saga, step, direction)
    return True


GERUND = {Direction.COMPENSATE: "compensating", Direction.CORRECT: "correcting"}


def undo_direction(step: StepRow) -> Direction | None:
    """How a step's effect is answered when its saga goes back, by what is recorded of its tool."""
    variant = step.variant
    if variant.tier == Tier.COMPENSATABLE:
        return Direction.COMPENSATE
    # Where nobody knows it is tried: that waits for the code or for a person, and tells nothing.
    if variant.tier == Tier.NON_COMPENSATABLE and can_correct(variant) is not False:
        return Direction.CORRECT
    return None


def ask_or_send(
    unit: Unit, saga: SagaRow, step: StepRow, direction: Direction, *, must_ask: str = ""
) -> None:
    """Start an undo, or put it to people first. A policy can make it wait, never forbid it."""
    verdict = judge(saga, step, direction, must_ask=must_ask)
    if verdict.kind == "allow":
        unit.send(step, "run", direction)
    else:
        ask(unit, saga, step, direction, verdict, why=must_ask)


def leave_as_residue(unit: Unit, saga: SagaRow, step: StepRow, why: str) -> None:
    """Record that an effect stays out in the world."""
    step.residue = True
    step.dirty = True
    unit.entry(saga, "step.residue", step, why=why)


def _residue(unit: Unit, saga: SagaRow) -> list[str]:
    return [step.step_id for step in unit.read_saga_steps(saga) if step.residue]
