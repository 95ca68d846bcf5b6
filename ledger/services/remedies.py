"""What each act of an operator does to a step; `operating` has checked that it is allowed."""

from __future__ import annotations

from typing import Any

from ledger import storage
from ledger.actions import Action, Trouble
from ledger.gate import gate
from ledger.outcomes import Applied, NotApplied
from ledger.rows import SagaRow, StepRow
from ledger.services import forward
from ledger.services.attempts import settle_attempts_in_doubt, spend_key
from ledger.services.backward import GERUND, advance, ask_or_send, begin
from ledger.services.cases import Case
from ledger.services.looking import conclude
from ledger.services.reconciling import back_in_doubt
from ledger.services.settling import ask_again, commit, fail, undone
from ledger.services.testimony import heard_instead, late_done, unseen
from ledger.services.tooling import Parked, check_result, tool_to_run
from ledger.services.unit import Unit
from ledger.states import Direction, RecordState, StepState

# Acts that say what is so in the world: kept even when they come too late.
ABOUT_THE_WORLD = frozenset({Action.HAPPENED, Action.DID_NOT_HAPPEN, Action.END_SAGA})

# A look, or a try, that waits for its time. Hurried, a look starts its count of negatives anew:
# two of them close together would prove nothing (case P17).
_HURRY = """
UPDATE ledger_outboxmessage SET due_at = clock_timestamp(), negatives = 0, parked_why = ''
WHERE step_id = %s AND taken_at IS NULL
"""
_UNDER_WAY = """
SELECT 1 FROM ledger_outboxmessage WHERE step_id = %s AND parked_why = ''
    AND (taken_at IS NULL AND due_at <= clock_timestamp()
        OR kind = 'probe' AND lease_until > clock_timestamp())
LIMIT 1
"""
# In doubt, to look is not to send again.
_DROP_RUN = """
UPDATE ledger_outboxmessage SET taken_at = clock_timestamp()
WHERE step_id = %s AND kind = 'run' AND taken_at IS NULL
"""
# What was wanted before an answer is wanted no more, and a look that is out counts no more.
_DROP = """
UPDATE ledger_outboxmessage SET taken_at = coalesce(taken_at, clock_timestamp()),
    lease_until = NULL
WHERE step_id = %s AND (taken_at IS NULL OR kind = 'probe' AND lease_until IS NOT NULL)
"""


def is_under_way(step: StepRow) -> bool:
    """Whether what a second "try now" would start is due, or out, already."""
    return storage.row(_UNDER_WAY, [step.id]) is not None


def only_hurries(case: Case, action: Action) -> bool:
    """Whether an act answers nothing, so that it may be pressed again about the same thing."""
    return action == Action.RETRY and case.trouble in {Trouble.DOUBT, Trouble.DELAYED}


def happened(unit: Unit, case: Case, result: Any) -> None:
    """The effect, or its undo, is there: looked up by a person, or done by one."""
    saga, step = case.saga, case.step
    if case.facts.is_forward:
        check_result(step.variant, result)
    _settled(unit, case)
    if case.facts.is_forward:
        if case.trouble == Trouble.DOUBT:
            found = Applied(result)
            conclude(unit, saga, step, Direction.FORWARD, found, tool=None, how="operator")
            return
        _take_from_queue(unit, step)
        spend_key(step, Direction.FORWARD, result, how="operator")
        commit(unit, saga, step, result, how="operator")
        return
    direction = case.facts.direction
    settle_attempts_in_doubt(step.id, direction, RecordState.EXECUTED)
    spend_key(step, direction, result, how="operator")
    gate().close([step.id], "it was done by hand")
    undone(unit, saga, step, direction, result, how="operator")


def did_not_happen(unit: Unit, case: Case) -> None:
    """It is certain that nothing happened: try again in doubt, else leave it out."""
    saga, step = case.saga, case.step
    _settled(unit, case)
    if not case.facts.is_forward:
        direction = case.facts.direction
        late = heard_instead(saga, step, direction)
        settle_attempts_in_doubt(step.id, direction, RecordState.FAILED)
        if late is None:
            _undo_again(unit, saga, step, direction)
        else:
            undone(unit, saga, step, direction, late.result, how="late answer")
    elif case.trouble == Trouble.DOUBT:
        tool = tool_to_run(step, Direction.FORWARD)
        known = None if isinstance(tool, Parked) else tool
        conclude(unit, saga, step, Direction.FORWARD, NotApplied(), tool=known, how="operator")
    else:
        step.fence += 1
        gate().close([step.id], "an operator left the step out")
        fail(unit, saga, step, "an operator says that it did not happen")
    forward.unstick(unit, saga, "an operator answered")


def end_saga(unit: Unit, case: Case, reason: str) -> None:
    """Leave what cannot be known as residue, and take the saga back from here."""
    saga, step = case.saga, case.step
    why = f"an operator ended the saga: {reason}"
    _settled(unit, case)
    if case.trouble == Trouble.DOUBT:
        # Nobody knows, and nobody will: it stays unknown, keeps its effect key, and is listed.
        step.residue = True
        unit.entry(saga, "step.residue", step, why=why)
    else:
        step.fence += 1
        # A spent key, or a late word of a version since edited, says that an effect is there.
        step.residue = case.facts.spent or late_done(step, Direction.FORWARD) is not None
        step.error = {"code": "failed", "detail": why}
        gate().close([step.id], why)
        unit.move(step, StepState.FAILED, "step.failed", error=why)
    unit.free(step)
    if saga.ended_backward_why:
        forward.unstick(unit, saga, why)
        advance(unit, saga)
    else:
        begin(unit, saga, why, cause=step.step_id)


def skip(unit: Unit, case: Case, reason: str) -> None:
    """Give an undo up: its effect stays as residue, and the steps below are undone."""
    saga, step = case.saga, case.step
    settled(step)
    step.residue = True
    gate().close([step.id], f"an operator skipped it: {reason}")
    why = f"an operator skipped the {case.facts.direction}: {reason}"
    step.held_why = unseen(step)
    unit.move(step, StepState.COMMITTED, "step.residue", why=why)
    unit.free(step)
    forward.unstick(unit, saga, why)
    advance(unit, saga)


def retry(unit: Unit, case: Case) -> None:
    """Another round of tries for a dead letter, a look at what is in doubt; else no more wait."""
    saga, step = case.saga, case.step
    if case.trouble == Trouble.STUCK:
        settled(step)
        if case.facts.is_forward:
            _run_again(unit, saga, step)
        else:
            _undo_again(unit, saga, step, case.facts.direction)
        forward.unstick(unit, saga, "an operator tried again")
        return
    if case.trouble == Trouble.DOUBT and storage.execute(_DROP_RUN, [step.id]):
        _in_doubt(unit, case)
    _hurry(unit, case)


def _hurry(unit: Unit, case: Case) -> None:
    """What waits is due now. In doubt with nothing that waits, a look is."""
    if storage.execute(_HURRY, [case.step.id]) == 0 and case.trouble == Trouble.DOUBT:
        _in_doubt(unit, case)
        unit.send(case.step, "probe", case.facts.direction)
    unit.also("SELECT pg_notify('ledger_outbox', '')", [])


def _in_doubt(unit: Unit, case: Case) -> None:
    back_in_doubt(unit, case.step, case.facts.direction, "a person has taken it up")
    forward.resume(unit, case.saga)  # its agent is asked for no other version any more


def confirm(unit: Unit, case: Case) -> None:
    """A person's yes to today's code, and to no other: it is kept as that code's digest."""
    step = case.step
    step.confirmed_tool = case.confirms
    step.held_why = ""
    step.dirty = True
    if case.trouble == Trouble.STUCK:
        retry(unit, case)
    else:
        _hurry(unit, case)
    forward.unstick(unit, case.saga, "an operator confirmed the code")


def acknowledge(unit: Unit, case: Case) -> None:
    """What a late answer said has been dealt with by hand."""
    case.step.held_why = ""
    case.step.dirty = True


def settled(step: StepRow) -> None:
    """The question is answered: nothing that was wanted before still counts."""
    step.held_why = ""
    step.dirty = True
    storage.execute(_DROP, [step.id])


def _settled(unit: Unit, case: Case) -> None:
    """The same. What is answered for in doubt is answered as what it is."""
    settled(case.step)
    if case.trouble == Trouble.DOUBT:
        _in_doubt(unit, case)


def _take_from_queue(unit: Unit, step: StepRow) -> None:
    """A step that could not run leaves the queue as what it has become: a person's business."""
    if step.state != StepState.QUEUED:
        return
    step.fence += 1
    gate().close([step.id], "it was done by hand")
    unit.move(step, StepState.STUCK, "step.stuck", why="nothing here may run it")


def _run_again(unit: Unit, saga: SagaRow, step: StepRow) -> None:
    if step.variant.verdict == "ask":
        ask_again(unit, saga, step, "An operator tries it again; a yes counts for one run.")
    else:
        forward.queue(unit, step, "step.queued", why="an operator tries it again")


def _undo_again(unit: Unit, saga: SagaRow, step: StepRow, direction: Direction) -> None:
    step.error = None  # the person has answered for the doubt
    if step.state == StepState.STUCK:
        kind = f"step.{GERUND[direction]}"
        unit.move(step, StepState.COMPENSATING, kind, why="an operator tries again")
    forward.unstick(unit, saga, "an operator tried again")
    ask_or_send(unit, saga, step, direction)
