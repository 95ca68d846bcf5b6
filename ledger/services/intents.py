"""What is written before anything is called: the intent (design rule 5.5)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from uuid import UUID

from ledger.services import claiming_sql as sql
from ledger.services.assignments import Assignment
from ledger.services.unit import Unit
from ledger.states import Direction, StepState
from ledger.walls_sql import SPENT


def start(unit: Unit, shift: UUID, ready: Sequence[Assignment]) -> None:
    """Write the intents: attempts, records, states and entries."""
    runs = [found for found in ready if found.attempt]
    if not runs:
        return
    for found in runs:
        unit.steps[found.step].fence += 1
    for statement in sql.START.of([_intent(unit, shift, found) for found in runs], spent=SPENT):
        unit.also(*statement)
    unit.send_ahead()
    for found in runs:
        _tell_start(unit, found)


def _tell_start(unit: Unit, found: Assignment) -> None:
    step = unit.steps[found.step]
    saga = unit.sagas[found.saga]
    facts: dict[str, Any] = {
        "direction": found.direction.value,
        "fence": step.fence,
        "attempt": found.round + 1,
        "tool": found.tool.key,
        "tool_digest": found.tool.digest,
        # What is handed to the tool, not what was proposed: the two are compared from outside.
        "args": found.call.args,
        "args_digest": step.variant.fingerprint,
        "idempotency_key": found.call.idempotency_key,
    }
    step.held_why = ""
    step.dirty = True
    if found.direction == Direction.FORWARD:
        step.attempts += 1
        unit.move(step, StepState.EXECUTING, "attempt.started", **facts)
    else:
        unit.entry(saga, "attempt.started", step, **facts)


def _intent(unit: Unit, shift: UUID, found: Assignment) -> dict[str, Any]:
    step = unit.steps[found.step]
    return {
        "id": found.message,
        "attempt": str(found.attempt),
        "step": str(found.step),
        "direction": found.direction,
        "alternative": step.alternative,
        "fence": step.fence,
        "token": str(found.token),
        "key": found.call.idempotency_key,
        "fingerprint": step.variant.fingerprint,
        "shift": str(shift),
        "round": found.round,
        "lease_s": found.lease_s,
    }
