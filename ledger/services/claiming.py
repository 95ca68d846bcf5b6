"""Taking work: claim and intent are one commit, made before anything is called.

What a claim returns may be called out for; whatever has no committed claim was surely not
sent (design rules 5.2 and 5.5).
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import replace
from typing import Any
from uuid import UUID

from django.conf import settings
from django.db import DatabaseError

from ledger import storage
from ledger.doubt import has_open_doubt
from ledger.gate import NotYet, gate
from ledger.rows import SagaRow, StepRow
from ledger.services import claiming_sql as sql
from ledger.services.asking import held, key_for
from ledger.services.assignments import Assignment
from ledger.services.attempts import is_out
from ledger.services.holding import hold_again, within_limits
from ledger.services.intents import start
from ledger.services.looking import look_at_evidence
from ledger.services.reconciling import (
    back_in_doubt,
    hold_doubt,
    hold_for_operator,
    may_send_again,
    plan,
)
from ledger.services.retooling import (
    LOOK_AGAIN_S,
    bind,
    is_left_to_newer,
    told_changes,
    tool_to_bind,
)
from ledger.services.tampering import refuse_tampered, tampered, unsaid
from ledger.services.tooling import Parked, tool_to_run
from ledger.services.unit import Unit
from ledger.states import SAGA_ENDED, Direction, StepState
from ledger.tools.contract import Call, Tool
from ledger.walls_sql import REFUSED, SPENT

__all__ = ["Assignment", "claim"]

# A parked message is looked at again after this long: another worker may have the tool.
PARKED_AGAIN_S = 5.0


def claim(shift: UUID, room: int) -> list[Assignment]:
    """Take up to `room` due messages; what is returned is committed and may start at once."""
    try:
        return _claim(shift, room)
    except DatabaseError as error:
        met = storage.sqlstate(error)
        if met not in (SPENT, REFUSED):
            raise
    # One of them was executed already. That never happens unless a row was changed behind the
    # ledger, so only then is it worth the look for which. Or a wall refused one whose yes had
    # ended since it was looked at: looked at again, it goes back to people.
    return _claim(shift, room, looks_for_spent=met == SPENT)


@storage.transition
def _claim(shift: UUID, room: int, *, looks_for_spent: bool = False) -> list[Assignment]:
    unit = Unit(f"worker:{shift}")
    messages = unit.lock_taken(sql.TAKE, [room])
    messages.sort(key=lambda message: (message.due_at, message.message))
    ready = _considered(unit, messages)
    ready = _with_resources(unit, ready)
    if looks_for_spent:
        ready = _without_spent(unit, ready)
    ready = within_limits(unit, ready)
    start(unit, shift, ready)
    unit.flush(last=True)
    return ready


def _considered(unit: Unit, messages: Sequence[Any]) -> list[Assignment]:
    """What of these may run now; of a step and direction one call at a time."""
    ready: list[Assignment] = []
    sagas: set[UUID] = set()
    for message in messages:
        if message.of_saga in sagas:
            # What the one before came to is read from the rows by what is asked next.
            unit.flush()
        sagas.add(message.of_saga)
        if message.kind == "run" and _is_out(message, ready):
            storage.execute(sql.VOID, [message.message])
        elif found := _consider(unit, message):
            ready.append(found)
    return ready


def _is_out(message: Any, ready: Sequence[Assignment]) -> bool:
    """Whether a call of this step is out, or about to leave. Its end decides what follows.

    Forward the state says so; that of an undo does not change while it is tried.
    """
    if any(found.attempt and found.step == message.of_step for found in ready):
        return True
    return message.direction != Direction.FORWARD and is_out(message.of_step)


def _consider(unit: Unit, message: Any) -> Assignment | None:
    """Whether this message may run now; if not, what becomes of it instead."""
    step = unit.steps[message.of_step]
    saga = unit.sagas[message.of_saga]
    if not _is_wanted(message, saga, step):
        storage.execute(sql.VOID, [message.message])
        return None
    tool = tool_to_run(step, Direction(message.direction))
    if isinstance(tool, Parked):
        _park(unit, saga, step, message, tool.why)
        return None
    if message.kind == "probe":
        return _look(unit, saga, step, message, tool)
    if why := tampered(step, Direction(message.direction), tool):
        _refuse(unit, saga, step, message, why)
        return None
    if has_open_doubt(step) and not may_send_again(step, Direction(message.direction), tool):
        _find_out(unit, saga, step, message, tool)
        return None
    if not _gate_agrees(unit, saga, step, message, tool):
        return None
    return _assignment(saga, step, message, tool)


def _is_wanted(message: Any, saga: SagaRow, step: StepRow) -> bool:
    """A message counts only while the state that wrote it still wants it."""
    if saga.state in SAGA_ENDED:
        return False
    if message.direction == Direction.FORWARD:
        state = StepState.UNKNOWN if message.kind == "probe" else StepState.QUEUED
        if message.kind == "run" and message.saga_fence != saga.fence:
            return False
    else:
        state = StepState.COMPENSATING
    return step.state == state


def _look(unit: Unit, saga: SagaRow, step: StepRow, message: Any, tool: Tool) -> Assignment | None:
    """A look needs no call when late evidence answers already."""
    lease_s = tool.timeout_s + settings.SAGA_LEASE_MARGIN_S
    taken = storage.the_row(sql.TAKE_LOOK, [lease_s, message.message])
    if look_at_evidence(unit, saga, step, message, tool):
        storage.execute(sql.VOID, [message.message])
        return None
    return replace(_assignment(saga, step, message, tool), looks_since=taken.taken_at)


def _park(unit: Unit, saga: SagaRow, step: StepRow, message: Any, why: str) -> None:
    storage.execute(sql.PARK, [PARKED_AGAIN_S, why, message.message])
    if step.held_why != why:
        step.held_why = why
        step.dirty = True
        unit.entry(saga, "step.parked", step, why=why)


def _gate_agrees(unit: Unit, saga: SagaRow, step: StepRow, message: Any, tool: Tool) -> bool:
    """Ask the gate again for a step that it held; a mismatch goes back to people, unrun."""
    direction = Direction(message.direction)
    if direction == Direction.FORWARD:
        if (today := tool_to_bind(step, tool)) is not None:
            _bind(unit, saga, step, message, today)
            return False
        if step.variant.verdict != "ask":
            return True
    why = gate().recheck(held(saga, step, direction))
    if not why:
        if forged := unsaid(step, direction):
            _refuse(unit, saga, step, message, forged)
        return not forged
    if isinstance(why, NotYet):
        storage.execute(sql.PUT_OFF, [why.seconds, message.message])
        return False
    storage.execute(sql.VOID, [message.message])
    if has_open_doubt(step):
        hold_doubt(unit, saga, step, direction, why)
        return False
    hold_again(unit, saga, step, direction, why)
    return False


def _bind(unit: Unit, saga: SagaRow, step: StepRow, message: Any, today: Tool) -> None:
    """It was judged as another version of its tool: it is judged as this one before it runs."""
    if is_left_to_newer(step, today, message.message):
        storage.execute(sql.PUT_OFF, [LOOK_AGAIN_S, message.message])
        return
    storage.execute(sql.VOID, [message.message])
    if has_open_doubt(step):
        hold_doubt(unit, saga, step, Direction.FORWARD, told_changes(step.variant, today))
    else:
        bind(unit, saga, step, today)


def _find_out(unit: Unit, saga: SagaRow, step: StepRow, message: Any, tool: Tool) -> None:
    """The target dedupes its key no longer: it waited too long to be sent again (rule 5.8)."""
    direction = Direction(message.direction)
    storage.execute(sql.VOID, [message.message])
    back_in_doubt(unit, step, direction, "the target no longer dedupes its key")
    plan(unit, saga, step, direction, tool=tool, round_no=message.round)


def _refuse(unit: Unit, saga: SagaRow, step: StepRow, message: Any, why: str) -> None:
    """It is not what the log tells: nothing of it runs."""
    storage.execute(sql.VOID, [message.message])
    refuse_tampered(unit, saga, step, Direction(message.direction), why)


def _assignment(saga: SagaRow, step: StepRow, message: Any, tool: Tool) -> Assignment:
    direction = Direction(message.direction)
    call = Call(
        direction=direction,
        saga_id=str(saga.id),
        step_id=step.step_id,
        args=step.variant.args,
        result=step.result,
        idempotency_key=key_for(step, direction),
        saga=saga.view(),
        step=step.view(),
        timeout_s=tool.timeout_s,
        attempt=message.round + 1,
    )
    return Assignment(
        message=message.message,
        attempt=uuid.uuid4() if message.kind == "run" else None,
        token=uuid.uuid4(),
        saga=saga.id,
        step=step.id,
        direction=direction,
        round=message.round,
        negatives=message.negatives,
        lease_s=max(settings.SAGA_LEASE_S, tool.timeout_s + settings.SAGA_LEASE_MARGIN_S),
        tool=tool,
        call=call,
        rows=(saga, step),
    )


def _with_resources(unit: Unit, ready: list[Assignment]) -> list[Assignment]:
    """Those whose resource is free or already theirs; the others stay in the outbox."""
    wanted = {
        str(found.step): unit.steps[found.step].variant.resource
        for found in ready
        if found.attempt and unit.steps[found.step].variant.resource
    }
    if not wanted:
        return ready
    pairs = sorted((resource, step) for step, resource in wanted.items())
    storage.execute(sql.HOLD, [[p[0] for p in pairs], [p[1] for p in pairs]])
    holders = storage.rows(sql.HOLDERS, [sorted(set(wanted.values()))])
    mine = {(row.resource, str(row.step_id)) for row in holders}
    return [
        found
        for found in ready
        if (resource := wanted.get(str(found.step))) is None or (resource, str(found.step)) in mine
    ]


def _without_spent(unit: Unit, ready: list[Assignment]) -> list[Assignment]:
    """Those whose key was not executed; the others get stuck, and never run."""
    keys_wanted = [found.call.idempotency_key for found in ready if found.attempt]
    spent = {row.key for row in storage.rows(sql.SPENT_KEYS, [keys_wanted])}
    refused = [found for found in ready if found.attempt and found.call.idempotency_key in spent]
    for found in refused:
        _refuse_executed(unit, found)
    return [found for found in ready if found not in refused]


def _refuse_executed(unit: Unit, found: Assignment) -> None:
    """The record of this key is `executed`: whatever the step's row says, it never runs again."""
    step = unit.steps[found.step]
    why = "Its idempotency record says that it was executed. It does not run again."
    storage.execute(sql.VOID, [found.message])
    unit.move(step, StepState.STUCK, "step.refused", why=why)
    unit.free(step)
    hold_for_operator(unit, unit.sagas[found.saga], step, why)
