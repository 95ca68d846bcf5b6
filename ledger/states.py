"""Every state and every permitted change of state, written once.

Models, the database's triggers and constraints, docs/states.md, badges and tests are
derived from these tables. Pure: no Django.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum


class StepState(StrEnum):
    WAITING = "waiting"
    AWAITING_APPROVAL = "awaiting_approval"
    CHANGE_REQUESTED = "change_requested"
    QUEUED = "queued"
    EXECUTING = "executing"
    UNKNOWN = "unknown"
    COMMITTED = "committed"
    FAILED = "failed"
    REJECTED = "rejected"
    CANCELLED = "cancelled"
    COMPENSATING = "compensating"
    COMPENSATED = "compensated"
    CORRECTED = "corrected"
    STUCK = "stuck"


class SagaState(StrEnum):
    RUNNING = "running"
    PAUSED = "paused"
    COMPENSATING = "compensating"
    STUCK = "stuck"
    COMPLETED = "completed"
    COMPENSATED = "compensated"


class RecordState(StrEnum):
    PENDING = "pending"
    EXECUTED = "executed"
    FAILED = "failed"


class AttemptState(StrEnum):
    STARTED = "started"
    DONE = "done"
    FAILED = "failed"
    UNKNOWN = "unknown"


class MessageState(StrEnum):
    WAITING = "waiting"
    DELIVERED = "delivered"
    UNDELIVERED = "undelivered"


class Direction(StrEnum):
    FORWARD = "forward"
    COMPENSATE = "compensate"
    CORRECT = "correct"


class Tier(StrEnum):
    COMPENSATABLE = "compensatable"
    PIVOT = "pivot"
    NON_COMPENSATABLE = "non_compensatable"


class BlastRadius(StrEnum):
    LOW = "low"
    MEDIUM = "medium"
    HIGH = "high"


# One sentence a state: docs, tooltips and the API description all say the same.
STEP_MEANING: Mapping[StepState, str] = {
    StepState.WAITING: "An earlier step is not finished.",
    StepState.AWAITING_APPROVAL: "A person must say yes before it runs.",
    StepState.CHANGE_REQUESTED: "A person asked the agent for another version.",
    StepState.QUEUED: "Ready to run, or waiting for its next try.",
    StepState.EXECUTING: "A worker is calling the target now.",
    StepState.UNKNOWN: "Nobody knows whether the effect happened; it is being found out.",
    StepState.COMMITTED: "The effect happened and its result is recorded.",
    StepState.FAILED: "It certainly did not happen and will not be tried again.",
    StepState.REJECTED: "A person, a policy or an expiry said no. It did not run.",
    StepState.CANCELLED: "It was never started.",
    StepState.COMPENSATING: "Its effect is being undone.",
    StepState.COMPENSATED: "Its effect was undone.",
    StepState.CORRECTED: "It cannot be undone; the correction was sent.",
    StepState.STUCK: "It is not tried again by itself; an operator must decide.",
}

SAGA_MEANING: Mapping[SagaState, str] = {
    SagaState.RUNNING: "Going forward.",
    SagaState.PAUSED: "Frozen by an operator, or waiting for the agent's next version.",
    SagaState.COMPENSATING: "Going back: committed steps are undone in reverse order.",
    SagaState.STUCK: "It cannot go on until an operator decides.",
    SagaState.COMPLETED: "Every step reached its end, forward.",
    SagaState.COMPENSATED: "It ended backwards; what is still out there is listed as residue.",
}

_S = StepState
STEP_TRANSITIONS: Mapping[StepState, frozenset[StepState]] = {
    _S.WAITING: frozenset({_S.QUEUED, _S.AWAITING_APPROVAL, _S.CANCELLED}),
    _S.AWAITING_APPROVAL: frozenset(
        {_S.QUEUED, _S.WAITING, _S.CHANGE_REQUESTED, _S.REJECTED, _S.CANCELLED}
    ),
    _S.CHANGE_REQUESTED: frozenset(
        {_S.AWAITING_APPROVAL, _S.QUEUED, _S.WAITING, _S.REJECTED, _S.CANCELLED}
    ),
    # Back to `unknown` only when it was to be sent again, to find out, and is not.
    _S.QUEUED: frozenset(
        {_S.EXECUTING, _S.AWAITING_APPROVAL, _S.STUCK, _S.FAILED, _S.CANCELLED, _S.REJECTED}
        | {_S.UNKNOWN}
    ),
    # Back to people from `executing` only when an alternative is next that the gate holds.
    _S.EXECUTING: frozenset(
        {_S.COMMITTED, _S.FAILED, _S.UNKNOWN, _S.QUEUED, _S.STUCK, _S.AWAITING_APPROVAL}
    ),
    _S.UNKNOWN: frozenset(
        {_S.COMMITTED, _S.FAILED, _S.QUEUED, _S.AWAITING_APPROVAL, _S.STUCK, _S.CANCELLED}
    ),
    _S.COMMITTED: frozenset({_S.COMPENSATING}),
    _S.COMPENSATING: frozenset({_S.COMPENSATED, _S.CORRECTED, _S.COMMITTED, _S.STUCK}),
    _S.STUCK: frozenset(
        {_S.QUEUED, _S.COMMITTED, _S.FAILED, _S.CANCELLED, _S.COMPENSATING, _S.COMPENSATED}
        | {_S.CORRECTED, _S.AWAITING_APPROVAL}
    ),
    _S.FAILED: frozenset(),
    _S.REJECTED: frozenset(),
    _S.CANCELLED: frozenset(),
    _S.COMPENSATED: frozenset(),
    _S.CORRECTED: frozenset(),
}

_G = SagaState
SAGA_TRANSITIONS: Mapping[SagaState, frozenset[SagaState]] = {
    _G.RUNNING: frozenset({_G.PAUSED, _G.COMPENSATING, _G.STUCK, _G.COMPLETED}),
    _G.PAUSED: frozenset({_G.RUNNING, _G.COMPENSATING, _G.STUCK}),
    _G.COMPENSATING: frozenset({_G.COMPENSATED, _G.STUCK}),
    _G.STUCK: frozenset({_G.RUNNING, _G.COMPENSATING, _G.COMPENSATED, _G.COMPLETED}),
    _G.COMPLETED: frozenset(),
    _G.COMPENSATED: frozenset(),
}

_R = RecordState
RECORD_TRANSITIONS: Mapping[RecordState, frozenset[RecordState]] = {
    _R.PENDING: frozenset({_R.EXECUTED, _R.FAILED}),
    _R.FAILED: frozenset({_R.PENDING}),
    _R.EXECUTED: frozenset(),
}

# One call of a target, from its intent on. What it says after its end changes nothing: evidence.
_A = AttemptState
ATTEMPT_TRANSITIONS: Mapping[AttemptState, frozenset[AttemptState]] = {
    _A.STARTED: frozenset({_A.DONE, _A.FAILED, _A.UNKNOWN}),
    _A.DONE: frozenset(),
    _A.FAILED: frozenset(),
    _A.UNKNOWN: frozenset(),
}

# A message to people or to a webhook, on one channel. `delivered`: its receiver took it.
_M = MessageState
MESSAGE_TRANSITIONS: Mapping[MessageState, frozenset[MessageState]] = {
    _M.WAITING: frozenset({_M.DELIVERED, _M.UNDELIVERED}),
    _M.UNDELIVERED: frozenset({_M.WAITING}),
    _M.DELIVERED: frozenset(),
}
MESSAGE_MEANING: Mapping[MessageState, str] = {
    _M.WAITING: "It is on its way, or waits for its next try.",
    _M.DELIVERED: "Its receiver took it.",
    _M.UNDELIVERED: "Its tries are used up; a person may have it tried again.",
}

# A step in one of these has reached an end as far as its agent is concerned.
STEP_FINISHED = frozenset(
    {_S.COMMITTED, _S.FAILED, _S.REJECTED, _S.CANCELLED, _S.COMPENSATED, _S.CORRECTED}
)
# Never ran, so there is nothing to undo.
STEP_NOT_STARTED = frozenset({_S.WAITING, _S.AWAITING_APPROVAL, _S.CHANGE_REQUESTED, _S.QUEUED})
# Something may be out in the world now.
STEP_IN_DOUBT = frozenset({_S.EXECUTING, _S.UNKNOWN})
# Once the effect is recorded, these can never hold again (a constraint in the database too).
STEP_BEFORE_EFFECT = STEP_NOT_STARTED | STEP_IN_DOUBT
# Ended without any effect in the world: an effect key is free again.
STEP_WITHOUT_EFFECT = frozenset({_S.FAILED, _S.REJECTED, _S.CANCELLED, _S.COMPENSATED})

SAGA_ENDED = frozenset({_G.COMPLETED, _G.COMPENSATED})
# States in which an agent may still propose steps.
SAGA_OPEN = frozenset({_G.RUNNING, _G.PAUSED, _G.STUCK})


def why_no_more_steps(state: str, *, closed: bool, turned_back: bool) -> str:
    """Why an agent can propose nothing more in a saga; '' while it can."""
    if turned_back:
        return "the saga has turned back"
    if state not in SAGA_OPEN:
        return f"the saga is {state}"
    return "its agent has closed the saga" if closed else ""
