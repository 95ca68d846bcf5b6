"""What follows from an outcome. Pure decisions: no clock, no database, no dice."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

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


class Spent(StrEnum):
    """Why a failed step is not tried again by itself."""

    # The failure is one that another try does not mend.
    FINAL = "final"
    # Its tool allows no more retries.
    TRIES = "tries"
    # The retries that all steps of its saga share.
    BUDGET = "budget"


@dataclass(frozen=True, slots=True)
class Fail:
    error: str
    spent: Spent = Spent.FINAL


@dataclass(frozen=True, slots=True)
class GetStuck:
    error: str
    spent: Spent = Spent.FINAL


BackwardRuling = Commit | FindOut | TryAgain | GetStuck
Ruling = BackwardRuling | TakeAlternative | Fail


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
            spent = _spent(retryable, at.tries_left)
            return GetStuck(error, spent) if at.past_pivot else Fail(error, spent)


def _spent(retryable: bool, tries_left: bool) -> Spent:
    if not retryable:
        return Spent.FINAL
    return Spent.BUDGET if tries_left else Spent.TRIES


def rule_backward(outcome: Outcome, *, tries_left: bool) -> BackwardRuling:
    """The same for an undo: it never fails, it gets stuck and waits for an operator."""
    match outcome:
        case Done():
            return Commit()
        case Unknown(reason):
            return FindOut(reason)
        case Failed(error, retryable, retry_after_s):
            if retryable and tries_left:
                return TryAgain(error, retry_after_s)
            return GetStuck(error, _spent(retryable, tries_left))
