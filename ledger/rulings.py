"""What follows from an outcome. Pure decisions: no clock, no database, no dice."""

from __future__ import annotations

from dataclasses import dataclass

from ledger.outcomes import Done, Failed, Outcome, Unknown


@dataclass(frozen=True, slots=True)
class Circumstances:
    """What a ruling depends on besides the outcome itself."""

    tries_left: bool
    budget_left: bool
    past_pivot: bool
    has_alternative: bool
    saga_goes_back: bool


@dataclass(frozen=True, slots=True)
class Commit:
    """The effect is recorded."""


@dataclass(frozen=True, slots=True)
class FindOut:
    """Nobody knows: reconcile."""

    reason: str


@dataclass(frozen=True, slots=True)
class TryAgain:
    error: str
    retry_after_s: float | None


@dataclass(frozen=True, slots=True)
class TakeAlternative:
    error: str


@dataclass(frozen=True, slots=True)
class Fail:
    error: str


@dataclass(frozen=True, slots=True)
class GetStuck:
    error: str


Ruling = Commit | FindOut | TryAgain | TakeAlternative | Fail | GetStuck


def rule_forward(outcome: Outcome, at: Circumstances) -> Ruling:
    """Design rules 5.7 to 5.11, for the forward direction."""
    match outcome:
        case Done():
            return Commit()
        case Unknown(reason):
            return FindOut(reason)
        case Failed(error, retryable, retry_after_s):
            if at.saga_goes_back:
                return Fail(error)
            if retryable and at.tries_left and at.budget_left:
                return TryAgain(error, retry_after_s)
            if at.has_alternative:
                return TakeAlternative(error)
            return GetStuck(error) if at.past_pivot else Fail(error)


def rule_backward(outcome: Outcome, *, tries_left: bool) -> Ruling:
    """The same for an undo: it never fails, it gets stuck and waits for an operator."""
    match outcome:
        case Done():
            return Commit()
        case Unknown(reason):
            return FindOut(reason)
        case Failed(error, retryable, retry_after_s):
            if retryable and tries_left:
                return TryAgain(error, retry_after_s)
            return GetStuck(error)
