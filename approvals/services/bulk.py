"""Many answers at once: exactly those that were seen, each for itself, each reported.

A no to anything; a yes only to what can be undone, because nobody reads twenty pivots. Each
item is its own transaction: one that fails stops no other.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal
from uuid import UUID

from django.db import DatabaseError

from approvals.models import Approval
from approvals.services import deciding
from approvals.states import Answer
from approvals.surface import Surface
from ledger.bearer import Bearer
from ledger.errors import (
    AlreadyDecided,
    ApprovalExpired,
    Forbidden,
    InvalidArgs,
    SagaError,
    StaleDigest,
)

logger = logging.getLogger(__name__)

# A page of the inbox. More than that nobody has looked at.
MAX_ITEMS = 50
Outcome = Literal["applied", "skipped", "failed"]
# The world went on between looking and answering: nothing is wrong, and nothing was done.
_SKIPS = (AlreadyDecided, ApprovalExpired, StaleDigest)


@dataclass(frozen=True, slots=True)
class Item:
    """One request as it was seen."""

    request: UUID
    args_digest: str


@dataclass(frozen=True, slots=True)
class Result:
    """What became of one item, in a sentence; `problem` is the type of the refusal, if any."""

    item: Item
    outcome: Outcome
    detail: str
    problem: str = ""


def why_alone(request: Approval) -> str:
    """Why a yes to this is given on its own page, or ''."""
    if request.is_final:
        return "It cannot be undone: say yes to it on its own page."
    if request.require_reason:
        return "Its rule wants a reason of its own: say yes to it on its own page."
    return ""


def decide_all(
    bearer: Bearer, answer: Answer, items: Sequence[Item], *, reason: str, via: Surface
) -> list[Result]:
    """Answer each item as `deciding` does, in the order given. Raises InvalidArgs."""
    if answer not in {Answer.APPROVE, Answer.REJECT}:
        raise InvalidArgs("In bulk the answer is approve or reject.", errors=[])
    if not items or len(items) > MAX_ITEMS:
        raise _wrong(f"Name 1 to {MAX_ITEMS} requests.")
    if len({item.request for item in items}) < len(items):
        raise _wrong("A request is named twice.")
    return [_one(bearer, answer, item, reason, via) for item in items]


def _wrong(detail: str) -> InvalidArgs:
    return InvalidArgs(detail, errors=[{"pointer": "/items", "detail": detail}])


def _one(bearer: Bearer, answer: Answer, item: Item, reason: str, via: Surface) -> Result:
    decide = deciding.approve if answer == Answer.APPROVE else deciding.reject
    try:
        if answer == Answer.APPROVE:
            _check_alone(item)
        done = decide(bearer, item.request, args_digest=item.args_digest, reason=reason, via=via)
    except _SKIPS as refusal:
        return Result(item, "skipped", refusal.detail, refusal.type)
    except SagaError as refusal:
        return Result(item, "failed", refusal.detail, refusal.type)
    except DatabaseError:
        logger.exception("request %s could not be answered in bulk", item.request)
        return Result(item, "failed", "The console could not write this answer. Try it again.")
    if done.replayed:
        return Result(item, "skipped", "You had given this answer before; it stands.")
    return Result(item, "applied", "Approved." if answer == Answer.APPROVE else "Rejected.")


def _check_alone(item: Item) -> None:
    """A tier and a rule never change under a request, so this look needs no lock."""
    found = Approval.objects.select_related("step").filter(pk=item.request).first()
    if found is not None and (why := why_alone(found)):
        raise Forbidden(why)
