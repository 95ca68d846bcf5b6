"""Answering a request: one conditional UPDATE has one winner, and everybody else is told the truth.

The saga's row is locked first, as everywhere in the ledger; decision, entry and what follows
from it are one transaction. Facts that must stay although the answer was refused (a late
click) are written in it too, so a refusal is returned and raised only after the commit.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from uuid import UUID

from approvals import rights
from approvals.services import editing, recording
from approvals.services.clicks import Click, Decided, Via, fault
from approvals.services.explaining import explain, gone
from approvals.states import Answer
from ledger import faultpoints, storage
from ledger.bearer import Bearer
from ledger.errors import Forbidden, NotFound, SagaError
from ledger.services.unit import Superseded


def approve(
    bearer: Bearer,
    approval_id: UUID,
    *,
    args_digest: str,
    reason: str = "",
    args: Mapping[str, Any] | None = None,
    via: Via = "page",
) -> Decided:
    """Say yes to exactly what has this digest; with `args`, to these instead of what was shown.

    Edited args supersede the request, and the yes is to the new one: others who are needed must
    agree to the new digest. Args that change nothing are a plain yes.

    Raises NotFound, Forbidden, InvalidArgs (the rule wants a reason; args that do not fit),
    StaleDigest, AlreadyDecided, ApprovalExpired, PreviouslyRejected (the edited version was
    rejected before, or the policy denies it).
    """
    return _decide(Click(bearer, approval_id, Answer.APPROVE, args_digest, reason, via, args))


def reject(
    bearer: Bearer,
    approval_id: UUID,
    *,
    args_digest: str,
    reason: str,
    via: Via = "page",
) -> Decided:
    """Say no, with a reason; also to what was approved and has not been started.

    Raises as `approve` does.
    """
    return _decide(Click(bearer, approval_id, Answer.REJECT, args_digest, reason, via))


def request_change(
    bearer: Bearer,
    approval_id: UUID,
    *,
    args_digest: str,
    reason: str,
    via: Via = "page",
) -> Decided:
    """Send the step back to its agent with a text. Raises as `approve` does."""
    return _decide(Click(bearer, approval_id, Answer.CHANGE, args_digest, reason, via))


def _decide(click: Click) -> Decided:
    try:
        outcome = _try(click)
    except Superseded:
        outcome = _withdraw(click)
    if isinstance(outcome, SagaError):
        raise outcome
    return outcome


@storage.transition
def _try(click: Click) -> Decided | SagaError:
    request = recording.locked(click.request)
    if request is None:
        return NotFound(f"There is no request {click.request}.")
    person = rights.who(click.bearer)
    is_allowed, why_not = rights.can_decide(person, request)
    if not is_allowed:
        return Forbidden(why_not)
    if wrong := fault(click, request):
        return wrong
    if click.args is not None:
        return editing.edit(click, request, person)
    if recording.has_voted(person, click, request):
        return Decided(request.pk, replayed=True)
    if not recording.say(click, request, person):
        return explain(click, person)
    faultpoints.reached("P23", click.answer)
    return Decided(request.pk, replayed=False)


@storage.transition
def _withdraw(click: Click) -> SagaError:
    """The step stopped waiting and its request did not: end it, and say so."""
    recording.locked(click.request)
    return gone(click)
