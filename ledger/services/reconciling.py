"""In doubt: how it will be found out. Never by running it blindly again (design rule 5.8)."""

from __future__ import annotations

from ledger import storage
from ledger.gate import gate
from ledger.rows import SagaRow, StepRow
from ledger.services.asking import key_for
from ledger.services.unit import Unit
from ledger.states import Direction, SagaState, StepState
from ledger.tools.contract import Tool

# The first look comes soon: most targets know at once, and a person may be waiting.
FIRST_LOOK_S = 0.2
# Leases that may run out under one step before a person is asked (cases C10, C17).
RECLAIMS = 5


def plan(
    unit: Unit,
    saga: SagaRow,
    step: StepRow,
    direction: Direction,
    *,
    tool: Tool | None,
    round_no: int,
) -> None:
    """Choose how to find out: look, send again under the same key, or ask an operator."""
    if tool is not None and step.reclaims < RECLAIMS:
        if tool.can_probe(direction):
            unit.send(step, "probe", direction, delay_s=FIRST_LOOK_S)
            return
        if may_send_again(step, direction, tool) and _try_left(saga, direction, tool, round_no):
            send_again(unit, saga, step, direction, round_no)
            return
    hold_for_operator(unit, saga, step, _question(step, direction))


def _try_left(saga: SagaRow, direction: Direction, tool: Tool, round_no: int) -> bool:
    return round_no < tool.retries and (direction != Direction.FORWARD or saga.has_budget)


def may_send_again(step: StepRow, direction: Direction, tool: Tool) -> bool:
    """Whether the target itself still dedupes the key of the first intent."""
    if not tool.downstream_idempotent:
        return False
    found = storage.row(
        "SELECT min(started_at) > clock_timestamp() - %s * interval '1 second' AS fresh "
        "FROM ledger_attempt WHERE step_id = %s AND direction = %s AND idempotency_key = %s",
        [tool.idempotent_for_s, step.id, direction, key_for(step, direction)],
    )
    return bool(found and found.fresh)


def send_again(
    unit: Unit, saga: SagaRow, step: StepRow, direction: Direction, round_no: int
) -> None:
    """Run again under the same key: the target answers with the first effect."""
    if direction == Direction.FORWARD:
        saga.retries_used += 1
        saga.dirty = True
        unit.move(step, StepState.QUEUED, "step.sent_again", why="the target dedupes on our key")
    else:
        unit.entry(saga, "attempt.sent_again", step, direction=direction)
    unit.send(step, "run", direction, delay_s=1.0, round_no=round_no + 1)


def hold_for_operator(unit: Unit, saga: SagaRow, step: StepRow, why: str) -> None:
    """Only a person can go on from here; the saga says so until one does."""
    step.held_why = why
    step.dirty = True
    if saga.state != SagaState.STUCK:
        unit.move_saga(saga, SagaState.STUCK, "saga.stuck", step=step.step_id, why=why)


def _question(step: StepRow, direction: Direction) -> str:
    what = {
        Direction.FORWARD: "the effect",
        Direction.COMPENSATE: "the undo",
        Direction.CORRECT: "the correction",
    }[direction]
    return (
        f"Nobody knows whether {what} of {step.variant.tool} happened, and it cannot be looked "
        "up. Check at the target, then say whether it did, or go on without knowing."
    )


def hold_doubt(
    unit: Unit, saga: SagaRow, step: StepRow, direction: Direction, why_not: str
) -> None:
    """It was to be sent again and is not: nothing has become certain by that, so a person answers.

    No answer about the sending may end it as if it certainly had not happened.
    """
    why = f"It was to be sent again, to find out, but: {why_not}"
    if direction != Direction.FORWARD:
        unit.entry(saga, "attempt.unknown", step, direction=direction, reason=why)
    back_in_doubt(unit, step, direction, why)
    hold_for_operator(unit, saga, step, why)


def back_in_doubt(unit: Unit, step: StepRow, direction: Direction, why: str) -> None:
    """Be as unknown as before, wherever it waited to be sent again.

    That is in the queue; earlier releases also left such steps stuck, or with people.
    """
    if direction != Direction.FORWARD:
        if step.state == StepState.STUCK:
            unit.move(step, StepState.COMPENSATING, "step.compensating", why=why)
        return
    if step.state == StepState.UNKNOWN:
        return
    gate().close([step.id], why)
    if step.state != StepState.QUEUED:
        unit.move(step, StepState.QUEUED, "step.queued", why=why)
    unit.move(step, StepState.UNKNOWN, "step.unknown", reason=why)
