"""What must hold of a saga at every moment, whatever was done to it: read from the rows, the
entries, the pages' own queries, and the target's book. Each check returns what is wrong."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any
from uuid import UUID

from approvals import queries as approval_queries
from approvals.rights import Person
from ledger import storage
from ledger.models import Attempt, Entry, IdempotencyRecord, OutboxMessage, Saga, Step
from ledger.queries.pages_attention import Attention, attention
from ledger.queries.pages_sagas import find_sagas
from ledger.services.freezing import active_freezes
from ledger.services.verifying import verify_saga
from ledger.states import (
    SAGA_ENDED,
    SAGA_TRANSITIONS,
    STEP_FINISHED,
    STEP_TRANSITIONS,
    RecordState,
    SagaState,
    StepState,
)
from tests.book import Book

# How the key of what ended in this state begins at the target.
PREFIX: Mapping[str, str] = {StepState.COMPENSATED: "comp:", StepState.CORRECTED: "corr:"}


def faults_of(
    saga_id: UUID, book: Book, approver: Person, seen: Attention | None = None
) -> list[str]:
    """Everything that is wrong with one saga now; empty when all holds.

    `seen`: the page of what needs attention, when it was read already.
    """
    saga = Saga.objects.get(pk=saga_id)
    steps = list(Step.objects.filter(saga=saga).order_by("position"))
    told = list(Entry.objects.filter(saga=saga).order_by("seq"))
    return [
        *(str(fault) for fault in verify_saga(saga)),
        *_edges(told),
        *_effects(steps, told, book),
        *_records(steps, book),
        *_in_turn(steps, told),
        *_order(steps, told),
        *_approved(steps, told),
        *_paused(saga, steps),
        *_visible(saga, steps, approver, seen),
    ]


def _edges(told: Sequence[Entry]) -> Iterator[str]:
    """State only along the table."""
    now: dict[str, str] = {}
    for entry in told:
        if not entry.state:
            continue
        was, now[entry.step_id] = now.get(entry.step_id), entry.state
        table: Any = STEP_TRANSITIONS if entry.step_id else SAGA_TRANSITIONS
        if was not in (None, entry.state) and entry.state not in table[was]:
            yield f"entry {entry.seq}: {entry.step_id or 'the saga'} from {was} to {entry.state}"


def _by_hand(told: Sequence[Entry]) -> set[str]:
    """Steps for which an operator answered: what they say is not the target's word."""
    return {entry.step_id for entry in told if entry.kind == "operator.resolved"}


def _effects(steps: Sequence[Step], told: Sequence[Entry], book: Book) -> Iterator[str]:
    """At most one effect for each logical action; exactly one where the ledger says committed."""
    by_hand = _by_hand(told)
    for step in steps:
        key = step.idempotency_key
        done = len(book.find(key, "effects"))
        if done > 1:
            yield f"{step.step_id}: {done} effects under its key"
        if step.executed_seq is not None and done != 1:
            yield f"{step.step_id}: is {step.state} after an effect, and the target has {done}"
        for prefix in ("comp:", "corr:"):
            undone = len(book.find(prefix + key, "undos"))
            if undone > 1:
                yield f"{step.step_id}: {undone} undos under {prefix}"
            if undone and step.executed_seq is None:
                yield f"{step.step_id}: undone, and nothing was recorded that could be"
        wanted = PREFIX.get(step.state)
        if wanted and not book.find(wanted + key, "undos") and step.step_id not in by_hand:
            yield f"{step.step_id}: is {step.state}, and the target was never told"
        if step.state in (StepState.FAILED, StepState.REJECTED, StepState.CANCELLED) and done:
            if step.step_id not in by_hand:
                yield f"{step.step_id}: is {step.state}, and the target has its effect"


def _records(steps: Sequence[Step], book: Book) -> Iterator[str]:
    """Idempotency records agree with steps and with the target."""
    records: dict[str, IdempotencyRecord] = {
        record.key: record for record in IdempotencyRecord.objects.filter(step__in=steps)
    }
    started = set(Attempt.objects.filter(step__in=steps).values_list("idempotency_key", flat=True))
    if started != records.keys():
        yield f"attempts and records are about other keys: {started ^ records.keys()}"
    out = Counter(
        Attempt.objects.filter(step__in=steps, state="started").values_list("step_id", flat=True)
    )
    for step in steps:
        record = records.get(step.idempotency_key)
        state = record.state if record else None
        if step.executed_seq is not None and state != RecordState.EXECUTED:
            # An operator may say that a stuck step happened after all: its record says failed.
            if state != RecordState.FAILED:
                yield f"{step.step_id}: has its effect, and its record says {state}"
        if step.executed_seq is None and state == RecordState.EXECUTED:
            yield f"{step.step_id}: is {step.state}, and its record says executed"
        if state == RecordState.FAILED and step.executed_seq is None:
            if book.find(step.idempotency_key, "effects"):
                yield f"{step.step_id}: its record says failed, and the target has the effect"
        if step.state == StepState.EXECUTING and (out[step.pk] != 1 or state != "pending"):
            yield f"{step.step_id}: executing with {out[step.pk]} attempts out, record {state}"
        if out[step.pk] > 1:
            yield f"{step.step_id}: {out[step.pk]} attempts at once"


def _in_turn(steps: Sequence[Step], told: Sequence[Entry]) -> Iterator[str]:
    """A step starts when every step before it has ended."""
    places = {step.step_id: step.position for step in steps}
    now: dict[str, str] = {}
    for entry in told:
        if entry.kind == "attempt.started" and entry.state == StepState.EXECUTING:
            for one, state in now.items():
                if places[one] < places[entry.step_id] and state not in STEP_FINISHED:
                    yield f"entry {entry.seq}: {entry.step_id} starts while {one} is {state}"
        if entry.step_id and entry.state:
            now[entry.step_id] = entry.state


def _order(steps: Sequence[Step], told: Sequence[Entry]) -> Iterator[str]:
    """Undone strictly in the reverse order of the recorded effects, one at a time."""
    executed = {step.step_id: step.executed_seq for step in steps if step.executed_seq is not None}
    last, under_way = None, ""
    for entry in told:
        if entry.kind in ("step.compensating", "step.correcting"):
            if under_way and under_way != entry.step_id:
                yield f"entry {entry.seq}: {entry.step_id} is undone while {under_way} still is"
            if last is not None and executed[entry.step_id] > last:
                yield f"entry {entry.seq}: {entry.step_id} is undone after an earlier effect"
            last, under_way = executed[entry.step_id], entry.step_id
        elif entry.step_id == under_way and entry.state in (
            StepState.COMPENSATED,
            StepState.CORRECTED,
            StepState.COMMITTED,
        ):
            under_way = ""


def _approved(steps: Sequence[Step], told: Sequence[Entry]) -> Iterator[str]:
    """What needs a person ran only after a yes to exactly that, given after it was asked."""
    held = {step.step_id for step in steps if step.verdict == "ask"}
    asked: dict[tuple[str, str], str] = {}
    yes: dict[tuple[str, str], Any] = {}
    for entry in told:
        facts: Mapping[str, Any] = json.loads(entry.payload)
        about = (entry.step_id, facts.get("direction", "forward"))
        match entry.kind:
            case "approval.requested":
                asked[about] = facts["approval"]
                yes.pop(about, None)
            case "approval.approved":
                if facts["approval"] == asked.get(about):
                    yes[about] = facts["args_digest"]
            case "approval.rejected" | "approval.expired" | "approval.change_requested":
                yes.pop(about, None)
            case "attempt.started":
                must = about in asked or (about[1] == "forward" and entry.step_id in held)
                if must and yes.get(about) != facts["args_digest"]:
                    yield f"entry {entry.seq}: {entry.step_id} ran without a yes to exactly that"


def _paused(saga: Saga, steps: Sequence[Step]) -> Iterator[str]:
    """It says paused exactly while something holds it that a person can see and end."""
    frozen = active_freezes().filter(scope="saga", value=str(saga.pk)).exists()
    change = [step.step_id for step in steps if step.state == StepState.CHANGE_REQUESTED]
    if saga.state == SagaState.PAUSED and not (frozen or change):
        yield "the saga is paused, and nothing holds it"
    if saga.state == SagaState.RUNNING and (frozen or change):
        yield f"the saga is running, and is held: frozen {frozen}, changes {change}"


def _visible(
    saga: Saga, steps: Sequence[Step], approver: Person, seen: Attention | None
) -> Iterator[str]:
    """A saga that has not ended is at work, or waits where somebody looks for it."""
    if saga.state in SAGA_ENDED:
        if left := [s.step_id for s in steps if s.state not in STEP_FINISHED and not s.residue]:
            yield f"the saga is {saga.state}, and these steps are not: {left}"
        return
    listed = find_sagas(state=saga.state, text=str(saga.pk)).rows
    if [row.saga.pk for row in listed] != [saga.pk]:
        yield f"the page of sagas does not find it as {saga.state}"
    if not waits_for(saga, steps, approver, seen or attention()):
        states = {step.step_id: (step.state, step.held_why) for step in steps}
        yield f"the saga is {saga.state} and nobody will ever look at it: {states}"


def waits_for(saga: Saga, steps: Sequence[Step], approver: Person, seen: Attention) -> str:
    """Who or what takes this saga on from here; '' for nobody."""
    shown = {
        case.step.pk for part in (seen.stuck, seen.unknown, seen.change_requested) for case in part
    }
    shown |= {owed.step.pk for owed in seen.parked}
    if any(step.pk in shown for step in steps):
        return "attention"
    if approval_queries.waiting_for(approver).filter(saga=saga).exists():
        return "inbox"
    if saga.state == SagaState.STUCK:
        return ""  # it says that only a person can go on, so a page must have shown it
    if OutboxMessage.objects.filter(saga_id=saga.pk, taken_at__isnull=True).exists():
        return "outbox"
    if OutboxMessage.objects.filter(saga_id=saga.pk, lease_until__isnull=False).exists():
        return "a look that is out"
    if Attempt.objects.filter(step__in=steps, state="started").exists():
        return "an attempt that is out"
    overdue = storage.rows(
        "SELECT 1 FROM approvals_approval WHERE saga_id = %s AND state = 'pending' "
        "AND expires_at <= clock_timestamp()",
        [saga.pk],
    )
    if overdue:
        return "the sweep"
    is_idle = all(step.state in STEP_FINISHED for step in steps)
    if is_idle and saga.closed_at is None and saga.state in (SagaState.RUNNING, SagaState.PAUSED):
        return "its agent"
    return ""
