"""What becomes of a step once it is known what its call came to. Rows only, no calls."""

from __future__ import annotations

import json
import random
from typing import Any

from ledger import backoff, keys
from ledger.outcomes import Done, Failed, Outcome
from ledger.rows import SagaRow, StepRow
from ledger.rulings import (
    BackwardRuling,
    Circumstances,
    Commit,
    Fail,
    FindOut,
    GetStuck,
    Ruling,
    Spent,
    TakeAlternative,
    TryAgain,
    rule_backward,
    rule_forward,
)
from ledger.services import forward
from ledger.services.alternatives import alternative_denied
from ledger.services.asking import ask, denial, judge, runs
from ledger.services.backward import advance, goes_back, turn
from ledger.services.reconciling import hold_for_operator, plan
from ledger.services.testimony import late_done, unseen
from ledger.services.unit import Unit
from ledger.states import Direction, SagaState, StepState, Tier
from ledger.tools.contract import Tool

# SystemRandom's spread is not needed; jitter only has to differ between workers.
_DICE = random.Random()  # noqa: S311


def settle(
    unit: Unit,
    saga: SagaRow,
    step: StepRow,
    direction: Direction,
    outcome: Outcome,
    *,
    tool: Tool | None,
    round_no: int,
    how: str = "attempt",
) -> None:
    """Apply an outcome to a step in flight, in doubt, or being undone."""
    tries_left = tool is None or round_no < tool.retries
    if direction == Direction.FORWARD:
        ruling = rule_forward(
            outcome,
            Circumstances(
                tries_left=tries_left,
                budget_left=saga.has_budget,
                past_pivot=saga.is_past_pivot,
                has_alternative=step.alternative < len(step.alternatives),
                saga_goes_back=isinstance(outcome, Failed) and goes_back(saga),
            ),
        )
        _apply_forward(unit, saga, step, ruling, outcome, tool=tool, round_no=round_no, how=how)
    else:
        ruling = rule_backward(outcome, tries_left=tries_left)
        _apply_backward(
            unit, saga, step, direction, ruling, outcome, tool=tool, round_no=round_no, how=how
        )


def _apply_forward(
    unit: Unit,
    saga: SagaRow,
    step: StepRow,
    ruling: Ruling,
    outcome: Outcome,
    *,
    tool: Tool | None,
    round_no: int,
    how: str,
) -> None:
    match ruling:
        case Commit():
            assert isinstance(outcome, Done)
            commit(unit, saga, step, outcome.result, how=how)
        case FindOut(reason):
            step.error = {"code": "unknown", "detail": reason}
            unit.move(step, StepState.UNKNOWN, "step.unknown", reason=reason)
            plan(unit, saga, step, Direction.FORWARD, tool=tool, round_no=round_no)
        case TryAgain(error, retry_after_s):
            _try_again(unit, saga, step, error, retry_after_s, round_no, how)
        case TakeAlternative(error):
            _take_alternative(unit, saga, step, error)
        case Fail(error, spent):
            why = _no_more(saga, spent, tool) if spent == Spent.BUDGET else ""
            fail(unit, saga, step, error, why=why)
        case GetStuck(error, spent):
            _give_up(unit, saga, step, error, _no_more(saga, spent, tool))


def _no_more(saga: SagaRow, spent: Spent, tool: Tool | None) -> str:
    """Why nothing is tried again by itself: whose tries are used up, if any. No full stop."""
    match spent:
        case Spent.BUDGET:
            of = f"{saga.retries_used} of {saga.retry_budget}"
            return f"The retries that all steps of this saga share are used up ({of})"
        case Spent.TRIES if tool is not None:
            allowed = f"{tool.retries} " + ("retry" if tool.retries == 1 else "retries")
            return f"The step's own tries are used up (its tool allows {allowed})"
        case _:
            return "A failure like this is not tried again by itself"


def commit(unit: Unit, saga: SagaRow, step: StepRow, result: Any, *, how: str) -> None:
    """Record the effect, and start what was waiting for it."""
    # Cut once, so that row and entry keep the same.
    step.result_text, was_cut = keys.storable(result)
    result = json.loads(step.result_text) if was_cut else result
    step.error = None
    step.held_why = ""
    variant = step.variant
    step.executed_seq = unit.move(
        step,
        StepState.COMMITTED,
        "step.committed",
        result=result,
        how=how,
        tool=variant.tool,
        idempotency_key=variant.idempotency_key,
    )
    unit.free(step)
    if variant.tier == Tier.PIVOT and saga.pivot_position is None:
        saga.pivot_position = step.position
        saga.dirty = True
    go_on(unit, saga, step)


def go_on(unit: Unit, saga: SagaRow, step: StepRow) -> None:
    """The saga's next move after a step has come to rest."""
    if saga.state == SagaState.STUCK:
        forward.unstick(unit, saga, f"step {step.step_id} is resolved")
    if saga.ended_backward_why:
        advance(unit, saga)
    elif step.alternatives and goes_back(saga):
        # What happened is another of its choices than the pivot that a turn waited for.
        turn(unit, saga, f"step {step.step_id} is resolved", cause=step.step_id)
    else:
        forward.start_next(unit, saga, step)


def fail(unit: Unit, saga: SagaRow, step: StepRow, error: str, *, why: str = "") -> None:
    """It certainly did not happen and is not tried again: before the pivot the saga turns back.

    `why`: what else is known, without a full stop. A version since edited may have happened.
    """
    step.error = {"code": "failed", "detail": error}
    step.held_why, step.residue = "", late_done(step, Direction.FORWARD) is not None
    unit.move(step, StepState.FAILED, "step.failed", error=error)
    unit.free(step)
    told = f"step {step.step_id} failed: {error}"
    turn_back(unit, saga, step, f"{told}. {why}." if why else told)


def turn_back(unit: Unit, saga: SagaRow, step: StepRow, why: str) -> None:
    """After a step that will not happen: back before the pivot, on after it."""
    if saga.ended_backward_why or saga.is_past_pivot:
        go_on(unit, saga, step)
    else:
        turn(unit, saga, why, cause=step.step_id)


def _try_again(
    unit: Unit,
    saga: SagaRow,
    step: StepRow,
    error: str,
    retry_after_s: float | None,
    round_no: int,
    how: str,
) -> None:
    step.error = {"code": "retrying", "detail": error}
    unit.free(step)
    if how == "probe" and step.variant.verdict == "ask":
        ask_again(unit, saga, step, "The approved run did not happen; a yes counts for one run.")
        return
    saga.retries_used += 1
    saga.dirty = True
    delay = backoff.delay_s(round_no + 1, rng=_DICE, retry_after_s=retry_after_s)
    unit.move(
        step, StepState.QUEUED, "step.retrying", error=error, attempt=round_no + 1, delay_s=delay
    )
    unit.send(step, "run", Direction.FORWARD, delay_s=delay, round_no=round_no + 1)


def ask_again(unit: Unit, saga: SagaRow, step: StepRow, why: str) -> None:
    """Put a forward run to people anew; a policy that now denies it ends it."""
    verdict = judge(saga, step, Direction.FORWARD, must_ask=why)
    if verdict.kind == "deny":
        fail(unit, saga, step, f"{why} {denial(verdict)}")
        return
    unit.move(step, StepState.AWAITING_APPROVAL, "step.held_again", why=why)
    ask(unit, saga, step, Direction.FORWARD, verdict, why=why)


def _take_alternative(unit: Unit, saga: SagaRow, step: StepRow, error: str) -> None:
    """The one before is resolved as not applied. What runs instead was judged with the step."""
    unit.free(step)
    step.alternative += 1
    step.error = {"code": "alternative", "detail": error}
    variant = step.variant
    if denied := alternative_denied(saga, step):
        told = f"{error}; {denied}"
        if step.alternative < len(step.alternatives):
            _take_alternative(unit, saga, step, told)
        else:
            _give_up(unit, saga, step, told, "None of its alternatives may run")
        return
    facts = {"error": error, "alternative": step.alternative} | runs(step, Direction.FORWARD)
    if variant.verdict == "allow":
        unit.move(step, StepState.QUEUED, "step.alternative", **facts)
        unit.send(step, "run", Direction.FORWARD)
        return
    why = f"The choice before it failed: {error}"
    verdict = judge(saga, step, Direction.FORWARD, must_ask=why)
    unit.move(step, StepState.AWAITING_APPROVAL, "step.alternative", **facts)
    ask(unit, saga, step, Direction.FORWARD, verdict, why=why)


def _give_up(unit: Unit, saga: SagaRow, step: StepRow, error: str, why: str) -> None:
    """No way forward is left for this step: back before the pivot, an operator after it."""
    if saga.is_past_pivot:
        step.error = {"code": "failed", "detail": error}
        unit.move(step, StepState.STUCK, "step.stuck", error=error)
        unit.free(step)
        hold_for_operator(unit, saga, step, f"{why}: {error}")
    else:
        fail(unit, saga, step, error)


def _apply_backward(
    unit: Unit,
    saga: SagaRow,
    step: StepRow,
    direction: Direction,
    ruling: BackwardRuling,
    outcome: Outcome,
    *,
    tool: Tool | None,
    round_no: int,
    how: str,
) -> None:
    match ruling:
        case Commit():
            assert isinstance(outcome, Done)
            undone(unit, saga, step, direction, outcome.result, how=how)
        case FindOut(reason):
            step.error = {"code": "unknown", "detail": reason}
            step.dirty = True
            unit.entry(saga, "attempt.unknown", step, direction=direction, reason=reason)
            plan(unit, saga, step, direction, tool=tool, round_no=round_no)
        case TryAgain(error, retry_after_s):
            unit.free(step)
            step.error = {"code": "retrying", "detail": error}
            step.dirty = True
            delay = backoff.delay_s(round_no + 1, rng=_DICE, retry_after_s=retry_after_s)
            unit.entry(
                saga,
                "attempt.failed",
                step,
                direction=direction,
                error=error,
                attempt=round_no + 1,
                delay_s=delay,
            )
            unit.send(step, "run", direction, delay_s=delay, round_no=round_no + 1)
        case GetStuck(error, spent):
            unit.free(step)
            step.error = {"code": "undo_failed", "detail": error}
            unit.move(step, StepState.STUCK, "step.stuck", direction=direction, error=error)
            hold_for_operator(unit, saga, step, f"{_no_more(saga, spent, tool)}: {error}")


def undone(
    unit: Unit, saga: SagaRow, step: StepRow, direction: Direction, result: Any, *, how: str
) -> None:
    """Record that an effect was undone, or corrected, and undo the one before it."""
    corrected = direction == Direction.CORRECT
    state = StepState.CORRECTED if corrected else StepState.COMPENSATED
    step.error = None
    # Undone is one effect. That there may be two stays shown until a person has seen to it.
    step.held_why = unseen(step) if step.attempts > 1 else ""
    unit.move(step, state, f"step.{state.value}", result=result, how=how)
    unit.free(step)
    go_on(unit, saga, step)
