"""Answering a request: one conditional UPDATE has one winner, and everybody else is told the truth.

The saga's row is locked first, as everywhere in the ledger; decision, entry and what follows
from it are one transaction. Facts that must stay although the answer was refused (a late
click) are written in it too, so a refusal is returned and raised only after the commit.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any
from uuid import UUID

from approvals import rights
from approvals.services import editing, entitling, recording, unmasking
from approvals.services.clicks import Click, Decided, fault
from approvals.services.explaining import gone
from approvals.states import Answer
from approvals.surface import CONSOLE, Surface
from ledger import storage
from ledger.bearer import Bearer
from ledger.errors import NotFound, SagaError
from ledger.reasons import needed
from ledger.services.unit import Superseded


def approve(
    bearer: Bearer,
    approval_id: UUID,
    *,
    args_digest: str,
    reason: str = "",
    args: Mapping[str, Any] | None = None,
    via: Surface = CONSOLE,
) -> Decided:
    """Say yes to exactly what has this digest; with `args`, to these instead of what was shown.

    Edited args supersede the request, and the yes is to the new one: others who are needed must
    agree to the new digest. Args that change nothing are a plain yes.

    Raises NotFound, Forbidden, InvalidArgs (the rule wants a reason; args that do not fit),
    StaleDigest, AlreadyDecided, ApprovalExpired, PreviouslyRejected (the edited version was
    rejected before, or the policy denies it).
    """
    return _decide(Click(bearer, approval_id, Answer.APPROVE, args_digest, reason, via, args))


def break_glass(
    bearer: Bearer,
    approval_id: UUID,
    *,
    args_digest: str,
    incident: str,
    reason: str,
    via: Surface = CONSOLE,
) -> Decided:
    """Say yes alone, in an incident, whatever the request needs. A review stays open after it.

    Always to what was shown: nobody edits alone. Raises as `approve` does.
    """
    known = needed(incident, "incident", "a broken glass belongs to an incident")
    said = needed(reason, why="it opens the review")
    click = Click(bearer, approval_id, Answer.APPROVE, args_digest, said, via, incident=known)
    return _decide(click)


def reject(
    bearer: Bearer,
    approval_id: UUID,
    *,
    args_digest: str,
    reason: str,
    via: Surface = CONSOLE,
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
    via: Surface = CONSOLE,
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
    barred = entitling.bar(person, request, click.answer, click.via, click.incident)
    if wrong := barred or fault(click, request):
        return wrong
    if click.args is not None:
        edited = replace(click, args=unmasking.meant(request, click.args))
        return editing.edit(edited, request, person)
    return recording.answer(click, request, person)


@storage.transition
def _withdraw(click: Click) -> SagaError:
    """The step stopped waiting and its request did not: end it, and say so."""
    recording.locked(click.request)
    return gone(click)
