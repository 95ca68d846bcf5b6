"""Looking whether an effect is there: probes, and what late answers have proven."""

from __future__ import annotations

from typing import Any

from django.conf import settings

from ledger import storage
from ledger.outcomes import Applied, Done, Failed, NotApplied, Sighting, StillUnknown
from ledger.rows import SagaRow, StepRow
from ledger.services.attempts import settle_attempts_in_doubt
from ledger.services.reconciling import (
    LOOK_CAP_S,
    LOOKS,
    hold_for_operator,
    may_send_again,
    plan,
    send_again,
)
from ledger.services.settling import settle
from ledger.services.unit import Unit
from ledger.states import Direction, RecordState
from ledger.tools.contract import Tool

# "Not applied" must be seen twice, this far apart at least (case P17).
NEGATIVES = 2


def look_at_evidence(unit: Unit, saga: SagaRow, step: StepRow, message: Any, tool: Tool) -> bool:
    """Settle from late answers when they suffice; True when nothing is left to look for."""
    direction = Direction(message.direction)
    doubts = storage.rows(
        "SELECT late FROM ledger_attempt WHERE step_id = %s AND direction = %s "
        "AND alternative = %s AND state = 'unknown' ORDER BY fence",
        [step.id, direction, step.alternative],
    )
    late = [row.late for row in doubts if row.late]
    applied = [evidence for evidence in late if evidence["outcome"] == "done"]
    if applied:
        found = Applied(applied[-1].get("result"))
        conclude(unit, saga, step, direction, found, tool=tool, how="late answer")
        return True
    if doubts and all(row.late and row.late["outcome"] == "failed" for row in doubts):
        conclude(unit, saga, step, direction, NotApplied(), tool=tool, how="late answer")
        return True
    if not tool.can_probe(direction):
        plan(unit, saga, step, direction, tool=None, round_no=message.round)
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
) -> None:
    """Apply what a probe saw: enough to conclude, or a reason to look again."""
    unit.entry(
        saga, "step.looked", step, direction=direction, saw=_saw(sighting), look=round_no + 1
    )
    if isinstance(sighting, Applied):
        conclude(unit, saga, step, direction, sighting, tool=tool, how="probe")
        return
    if isinstance(sighting, NotApplied):
        _count_negative(unit, saga, step, direction, tool, round_no, negatives)
        return
    step.held_why = ""
    if round_no + 1 < LOOKS:
        delay = min(LOOK_CAP_S, 0.5 * 2**round_no)
        unit.send(step, "probe", direction, delay_s=delay, round_no=round_no + 1)
    elif may_send_again(step, direction, tool):
        send_again(unit, saga, step, direction, 0)
    else:
        hold_for_operator(
            unit, saga, step, f"Looked {LOOKS} times and could not tell: {sighting.reason}"
        )


def _count_negative(
    unit: Unit,
    saga: SagaRow,
    step: StepRow,
    direction: Direction,
    tool: Tool,
    round_no: int,
    negatives: int,
) -> None:
    """A negative counts only once nothing can be in flight any more: later than settle_s."""
    left_s = _until_settled(step, direction, tool)
    counted = negatives + (left_s <= 0)
    if counted >= NEGATIVES:
        conclude(unit, saga, step, direction, NotApplied(), tool=tool, how="probe")
        return
    apart_s = settings.SAGA_PROBE_APART_S
    unit.send(
        step,
        "probe",
        direction,
        delay_s=max(left_s, apart_s),
        round_no=round_no,
        negatives=counted,
    )


def _until_settled(step: StepRow, direction: Direction, tool: Tool) -> float:
    found = storage.row(
        "SELECT extract(epoch FROM max(started_at) + %s * interval '1 second' "
        "- clock_timestamp())::float8 AS left_s FROM ledger_attempt "
        "WHERE step_id = %s AND direction = %s AND alternative = %s",
        [tool.settle_s, step.id, direction, step.alternative],
    )
    return float(found.left_s or 0.0) if found else 0.0


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
    """The doubt is over. The attempt in doubt stays recorded as unknown; its record ends."""
    applied = isinstance(sighting, Applied)
    settle_attempts_in_doubt(
        step.id, direction, RecordState.EXECUTED if applied else RecordState.FAILED
    )
    outcome = (
        Done(sighting.result)
        if isinstance(sighting, Applied)
        else Failed("it was looked up: it did not happen", retryable=True)
    )
    round_no = _rounds(step, direction)
    settle(
        unit, saga, step, direction, outcome, tool=tool, round_no=round_no, how=_how(how, applied)
    )


def _how(how: str, applied: bool) -> str:
    return how if applied else "probe"


def _rounds(step: StepRow, direction: Direction) -> int:
    found = storage.row(
        "SELECT coalesce(max(round), 0) AS round FROM ledger_attempt "
        "WHERE step_id = %s AND direction = %s AND alternative = %s",
        [step.id, direction, step.alternative],
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
