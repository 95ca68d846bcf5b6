"""Looking whether an effect is there: probes, and what late answers have proven."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.conf import settings

from ledger import storage
from ledger.backoff import LOOKS, look_delay_s
from ledger.outcomes import Applied, Done, Failed, NotApplied, Sighting, StillUnknown
from ledger.rows import SagaRow, StepRow
from ledger.services import forward
from ledger.services.asking import key_for
from ledger.services.attempts import settle_attempts_in_doubt
from ledger.services.reconciling import hold_for_operator, may_send_again, plan, send_again
from ledger.services.settling import settle
from ledger.services.testimony import heard_instead, tell_second_effect
from ledger.services.unit import Unit
from ledger.states import Direction, RecordState, StepState
from ledger.tools.contract import Tool

# "Not applied" must be seen twice, this far apart at least (case P17).
NEGATIVES = 2


# By the key and not by the place among the choices: a version before had that place too.
_TRIES = """
SELECT state, late FROM ledger_attempt
WHERE step_id = %s AND direction = %s AND idempotency_key = %s ORDER BY fence
"""
# Once it is known, no other look of this direction counts: neither one that waits nor one out.
_DROP_LOOKS = """
UPDATE ledger_outboxmessage SET taken_at = coalesce(taken_at, clock_timestamp()),
    lease_until = NULL
WHERE step_id = %s AND direction = %s AND kind = 'probe'
    AND (taken_at IS NULL OR lease_until IS NOT NULL)
"""
_RUN_WAITS = """
SELECT 1 FROM ledger_outboxmessage
WHERE step_id = %s AND direction = %s AND kind = 'run' AND taken_at IS NULL LIMIT 1
"""


def is_open(step: StepRow, direction: Direction) -> bool:
    """Whether it is still unknown what the last attempt of this direction came to."""
    if direction == Direction.FORWARD:
        return step.state == StepState.UNKNOWN
    if step.state != StepState.COMPENSATING:
        return False
    tries = storage.rows(_TRIES, [step.id, direction, key_for(step, direction)])
    return (
        bool(tries)
        and tries[-1].state == "unknown"
        and storage.row(_RUN_WAITS, [step.id, direction]) is None
    )


def look_at_evidence(unit: Unit, saga: SagaRow, step: StepRow, message: Any, tool: Tool) -> bool:
    """Settle from late answers when they suffice; True when nothing is left to look for."""
    direction = Direction(message.direction)
    if not is_open(step, direction) or settle_by_evidence(unit, saga, step, direction, tool):
        return True
    if step.residue:
        # A person has ended the finding out: only what an attempt says by itself still counts.
        return True
    if not tool.can_probe(direction):
        plan(unit, saga, step, direction, tool=tool, round_no=_rounds(step, direction))
        return True
    return False


def settle_by_evidence(
    unit: Unit, saga: SagaRow, step: StepRow, direction: Direction, tool: Tool | None
) -> bool:
    """End a doubt by what its attempts have said late; False when that does not suffice."""
    tries = storage.rows(_TRIES, [step.id, direction, key_for(step, direction)])
    doubts = [row for row in tries if row.state == "unknown"]
    late = [row.late for row in doubts if row.late]
    applied = [evidence for evidence in late if evidence["outcome"] == "done"]
    if applied:
        found = Applied(applied[-1].get("result"))
        conclude(unit, saga, step, direction, found, tool=tool, how="late answer")
        return True
    if doubts and all(row.late and row.late["outcome"] == "failed" for row in doubts):
        conclude(unit, saga, step, direction, NotApplied(), tool=tool, how="late answer")
        return True
    return False


def weigh(
    unit: Unit,
    saga: SagaRow,
    step: StepRow,
    direction: Direction,
    sighting: Sighting,
    *,
    tool: Tool,
    round_no: int,
    negatives: int,
    began_at: datetime,
) -> None:
    """Apply what a probe saw: enough to conclude, or a reason to look again.

    `began_at`: when the look was taken. What it saw is as old as that, whenever it answered.
    """
    unit.entry(
        saga, "step.looked", step, direction=direction, saw=_saw(sighting), look=round_no + 1
    )
    if isinstance(sighting, Applied):
        conclude(unit, saga, step, direction, sighting, tool=tool, how="probe")
        return
    if isinstance(sighting, NotApplied):
        seen = _negatives(step, direction, tool, negatives, began_at)
        if seen.counted >= NEGATIVES:
            conclude(unit, saga, step, direction, sighting, tool=tool, how="probe")
        else:
            delay_s = max(seen.left_s, settings.SAGA_PROBE_APART_S)
            unit.send(
                step,
                "probe",
                direction,
                delay_s=delay_s,
                round_no=round_no,
                negatives=seen.counted,
            )
        return
    looks = round_no + 1
    if looks == LOOKS and may_send_again(step, direction, tool):
        step.held_why = ""
        send_again(unit, saga, step, direction, 0)
        return
    if looks >= LOOKS:
        why = f"Looked {looks} times and could not tell: {sighting.reason}"
        hold_for_operator(unit, saga, step, why)
    else:
        step.held_why = ""
    unit.send(step, "probe", direction, delay_s=look_delay_s(looks), round_no=looks)


@dataclass(frozen=True, slots=True)
class _Negatives:
    """How many sightings of nothing count, and how long until one more may (seconds)."""

    counted: int
    left_s: float


def _negatives(
    step: StepRow, direction: Direction, tool: Tool, before: int, began_at: datetime
) -> _Negatives:
    """A negative counts only if nothing could be in flight when the look began: later than
    settle_s after the last intent (case P17)."""
    found = storage.the_row(
        "SELECT extract(epoch FROM max(started_at) + %s * interval '1 second' - %s)::float8 "
        "AS then_s, extract(epoch FROM max(started_at) + %s * interval '1 second' "
        "- clock_timestamp())::float8 AS now_s FROM ledger_attempt "
        "WHERE step_id = %s AND direction = %s AND idempotency_key = %s",
        [tool.settle_s, began_at, tool.settle_s, step.id, direction, key_for(step, direction)],
    )
    counts = found.then_s is None or found.then_s <= 0
    return _Negatives(before + counts, max(found.now_s or 0.0, 0.0))


def conclude(
    unit: Unit,
    saga: SagaRow,
    step: StepRow,
    direction: Direction,
    sighting: Applied | NotApplied,
    *,
    tool: Tool | None,
    how: str,
) -> None:
    """The doubt is over. The attempt in doubt stays recorded as unknown; its record ends.

    Nothing was seen, but an attempt has said late that it was carried out: that counts.
    """
    applied = isinstance(sighting, Applied)
    storage.execute(_DROP_LOOKS, [step.id, direction])
    step.held_why = ""
    step.dirty = True
    # Its own word spends the key of the choice that happened; those after it did not happen.
    record = RecordState.EXECUTED if applied else RecordState.FAILED
    if not applied and (late := heard_instead(saga, step, direction)):
        sighting, applied, how = Applied(late.result), True, "late answer"
    settle_attempts_in_doubt(step.id, direction, record)
    outcome = (
        Done(sighting.result)
        if isinstance(sighting, Applied)
        else Failed("it was looked up: it did not happen", retryable=True)
    )
    round_no = _rounds(step, direction)
    settle(
        unit, saga, step, direction, outcome, tool=tool, round_no=round_no, how=_how(how, applied)
    )
    if applied:
        tell_second_effect(unit, saga, step, direction)
    forward.unstick(unit, saga, f"step {step.step_id} is no longer in doubt")


def _how(how: str, applied: bool) -> str:
    return how if applied else "probe"


def _rounds(step: StepRow, direction: Direction) -> int:
    found = storage.row(
        "SELECT coalesce(max(round), 0) AS round FROM ledger_attempt "
        "WHERE step_id = %s AND direction = %s AND idempotency_key = %s",
        [step.id, direction, key_for(step, direction)],
    )
    return int(found.round) if found else 0


def _saw(sighting: Sighting) -> str:
    match sighting:
        case Applied():
            return "applied"
        case NotApplied():
            return "not applied"
        case StillUnknown(reason):
            return f"unknown: {reason}"
