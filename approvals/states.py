"""Every state of a request to people, and every permitted change, written once. Pure.

The model, the database's trigger, the documents and the tests are derived from this.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum


class ApprovalState(StrEnum):
    PENDING = "pending"
    APPROVED = "approved"
    REJECTED = "rejected"
    CHANGE_REQUESTED = "change_requested"
    EXPIRED = "expired"
    SUPERSEDED = "superseded"
    CANCELLED = "cancelled"


class Answer(StrEnum):
    APPROVE = "approve"
    REJECT = "reject"
    CHANGE = "request_change"


MEANING: Mapping[ApprovalState, str] = {
    ApprovalState.PENDING: "It waits for people.",
    ApprovalState.APPROVED: "Exactly what was shown may run once.",
    ApprovalState.REJECTED: "A person said no. It does not run.",
    ApprovalState.CHANGE_REQUESTED: "The agent was asked for another version.",
    ApprovalState.EXPIRED: "Nobody answered in time. It does not run.",
    ApprovalState.SUPERSEDED: "Another request took its place; its answers count no more.",
    ApprovalState.CANCELLED: "The step will not run, so nobody needs to answer.",
}

_A = ApprovalState
# `approved` is not an end until it is used: a later no beats a yes, and a yes to what is no
# longer what would run is superseded.
TRANSITIONS: Mapping[ApprovalState, frozenset[ApprovalState]] = {
    _A.PENDING: frozenset(
        {_A.APPROVED, _A.REJECTED, _A.CHANGE_REQUESTED} | {_A.EXPIRED, _A.SUPERSEDED, _A.CANCELLED}
    ),
    _A.APPROVED: frozenset({_A.REJECTED, _A.SUPERSEDED, _A.CANCELLED}),
    _A.REJECTED: frozenset(),
    _A.CHANGE_REQUESTED: frozenset(),
    _A.EXPIRED: frozenset(),
    _A.SUPERSEDED: frozenset(),
    _A.CANCELLED: frozenset(),
}

# The state that an answer of people leads to.
STATE_OF: Mapping[Answer, ApprovalState] = {
    Answer.APPROVE: _A.APPROVED,
    Answer.REJECT: _A.REJECTED,
    Answer.CHANGE: _A.CHANGE_REQUESTED,
}
ANSWERED = frozenset(STATE_OF.values())
# Still able to lead to a run.
OPEN = frozenset({_A.PENDING, _A.APPROVED})
