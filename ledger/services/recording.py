"""Writing down what calls came to, many at once, each under its own token and fence."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any
from uuid import UUID

from django.db import IntegrityError, connection

from ledger import faultpoints, keys, storage
from ledger.doubt import has_open_doubt
from ledger.outcomes import Done, Failed, Outcome, Sighting, StillUnknown, Unknown
from ledger.services.assignments import Assignment
from ledger.services.attempts import end_attempt, told
from ledger.services.evidence import hear
from ledger.services.latewords import keep_word
from ledger.services.looking import is_open, weigh
from ledger.services.settling import settle
from ledger.services.testimony import heard_instead, tell_second_effect
from ledger.services.unit import Superseded, Unit
from ledger.states import Direction, SagaState, StepState

_ATTEMPTS = """
SELECT id, token, fence, state, idempotency_key
FROM ledger_attempt WHERE id = ANY(%s::uuid[])
"""

# One whose lease ran out may have been taken anew meanwhile: then an older sight is nobody's.
_END_LOOKS = """
UPDATE ledger_outboxmessage o SET lease_until = NULL
FROM unnest(%s::bigint[], %s::timestamptz[]) AS mine(id, taken_at)
WHERE o.id = mine.id AND o.taken_at = mine.taken_at AND o.lease_until > clock_timestamp()
RETURNING o.id
"""

# Enough for a stack trace; a reason is repeated in entries, states and pages.
MAX_REASON_CHARS = 20_000


@dataclass(frozen=True, slots=True)
class Finished:
    """One call that has come back."""

    assignment: Assignment
    outcome: Outcome | Sighting

    def __post_init__(self) -> None:
        object.__setattr__(self, "outcome", _storable(self.outcome))


def _storable(outcome: Outcome | Sighting) -> Outcome | Sighting:
    """The same outcome with words that Postgres can hold; results are seen to where written.

    One NUL in one target's refusal would otherwise undo the writing of its whole batch, again
    and again, until every lease in it had run out (case C93, design rule 5.14).
    """
    match outcome:
        case Failed(error):
            return replace(outcome, error=_words(error))
        case Unknown(reason) | StillUnknown(reason):
            return replace(outcome, reason=_words(reason))
    return outcome


def _words(text: str) -> str:
    kept = json.loads(keys.storable(text, max_chars=MAX_REASON_CHARS)[0])
    return kept if isinstance(kept, str) else str(kept)


def record(shift: UUID, finished: Sequence[Finished]) -> bool:
    """Write outcomes and sightings; True when they left something that can run now.

    An answer whose token is no longer current changes no state: it becomes evidence.
    Written again after a COMMIT whose answer was lost, it changes nothing.
    """
    # In a caller's transaction the refusal of one number would undo everything.
    if not connection.in_atomic_block and all(_is_plain(found) for found in finished):
        try:
            return _record_plain(shift, finished)
        except (Superseded, IntegrityError):
            pass  # something was told about one of these sagas meanwhile, or it has left: look
    return _record(shift, finished)


def _is_plain(found: Finished) -> bool:
    """Done at the first try, in a saga that goes forward: what follows needs no more than the
    claim has read. Of a further try the one before may have said "done" too."""
    assignment = found.assignment
    return (
        isinstance(found.outcome, Done)
        and assignment.attempt is not None
        and assignment.direction == Direction.FORWARD
        and assignment.rows is not None
        and assignment.rows[0].state == SagaState.RUNNING
        and assignment.rows[1].attempts == 1
    )


@storage.transition
def _record_plain(shift: UUID, finished: Sequence[Finished]) -> bool:
    """Write what was done without reading anything. Raises Superseded.

    The lease may have run out meanwhile, people may have answered, the agent may have gone on:
    each of these is told by an entry, and then the numbers of ours do not fit (`Unit.assume`).
    """
    unit = Unit(f"worker:{shift}")
    # Each entry locks its saga: in the order of ids, as everybody else does.
    for found in sorted(finished, key=lambda one: one.assignment.saga):
        assignment = found.assignment
        assert assignment.rows is not None
        assert assignment.attempt is not None
        assert isinstance(found.outcome, Done)
        unit.assume(*assignment.rows)
        end_attempt(unit, assignment.attempt, found.outcome)
        _settle(unit, assignment, found.outcome)
    return _written(unit, finished)


@storage.transition
def _record(shift: UUID, finished: Sequence[Finished]) -> bool:
    unit = Unit(f"worker:{shift}")
    (rows,) = unit.lock_with_steps(
        [found.assignment.step for found in finished],
        then=[(_ATTEMPTS, [[found.assignment.attempt for found in finished]])],
    )
    attempts = {row.id: row for row in rows}
    looks = _looks(finished)
    sagas: set[UUID] = set()
    for found in finished:
        assignment = found.assignment
        if assignment.step not in unit.steps:
            keep_word(assignment, found.outcome)
            continue
        if assignment.saga in sagas:
            # What the answer before came to is read from the rows by what is asked next.
            unit.flush()
        sagas.add(assignment.saga)
        if assignment.attempt is None:
            if assignment.message in looks:
                _record_look(unit, found)
        else:
            _record_attempt(unit, found, attempts[assignment.attempt])
    return _written(unit, finished)


def _written(unit: Unit, finished: Sequence[Finished]) -> bool:
    faultpoints.reached("P13", finished[0].assignment.direction)
    unit.flush(last=True)
    return unit.left_more


def _looks(finished: Sequence[Finished]) -> set[int]:
    """The looks that are still this worker's, by their messages; off the outbox for good."""
    taken = [found.assignment for found in finished if found.assignment.attempt is None]
    if not taken:
        return set()
    mine = [[one.message for one in taken], [one.looks_since for one in taken]]
    return {row.id for row in storage.rows(_END_LOOKS, mine)}


def _record_look(unit: Unit, found: Finished) -> None:
    assignment = found.assignment
    step = unit.steps[assignment.step]
    if not is_open(step, assignment.direction):
        return
    weigh(
        unit,
        unit.sagas[assignment.saga],
        step,
        assignment.direction,
        found.outcome,  # type: ignore[arg-type]
        tool=assignment.tool,
        round_no=assignment.round,
        negatives=assignment.negatives,
        began_at=assignment.looks_since,  # type: ignore[arg-type]  # a look has one
    )


def _record_attempt(unit: Unit, found: Finished, attempt: Any) -> None:
    assignment = found.assignment
    step = unit.steps[assignment.step]
    outcome: Outcome = found.outcome  # type: ignore[assignment]
    if attempt.state != "started" or attempt.token != assignment.token:
        _record_late(unit, found, attempt, outcome)
        return
    if isinstance(outcome, Failed) and has_open_doubt(step):
        # It says nothing of the attempt before, whose effect may be there.
        outcome = Unknown(f"{outcome.error}; an attempt before it is still in doubt")
    end_attempt(unit, attempt.id, outcome)
    forward = assignment.direction == Direction.FORWARD
    if step.state != (StepState.EXECUTING if forward else StepState.COMPENSATING):
        # Settled by other evidence while this call was out: the fact is kept, the state stays.
        _record_late(unit, found, attempt, outcome)
        return
    how = "attempt"
    saga = unit.sagas[assignment.saga]
    if isinstance(outcome, Failed) and (late := heard_instead(saga, step, assignment.direction)):
        # The target refused this attempt, and an earlier one has said that it was carried out.
        outcome, how = Done(late.result), "late answer"
    _settle(unit, assignment, outcome, how)
    if isinstance(outcome, Done) and how == "attempt" and not (forward and step.attempts == 1):
        key, fence = attempt.idempotency_key, attempt.fence
        tell_second_effect(unit, saga, step, assignment.direction, key=key, fence=fence)


def _settle(unit: Unit, assignment: Assignment, outcome: Outcome, how: str = "attempt") -> None:
    settle(
        unit,
        unit.sagas[assignment.saga],
        unit.steps[assignment.step],
        assignment.direction,
        outcome,
        tool=assignment.tool,
        round_no=assignment.round,
        how=how,
    )


def _record_late(unit: Unit, found: Finished, attempt: Any, outcome: Outcome) -> None:
    step = unit.steps[found.assignment.step]
    hear(unit, step, found.assignment.direction, attempt, keys.storable(told(outcome))[0])
