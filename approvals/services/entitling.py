"""Before an answer counts: whether this person may give it, in whose right, and is really there.

Who may is said by one function (approvals/rights.py); here it meets the surface. A page must
have asked for the password not long ago when much is at stake, because a session can be left
open or stolen; a token is its own proof, and `SAGA_TOKENS_DECIDE` says how far that goes.
"""

from __future__ import annotations

import logging
from datetime import datetime
from typing import Any

from django.conf import settings

from approvals import rights, sentences
from approvals.models import Approval, Decision, Review
from approvals.rights import Person, Voice
from approvals.services import spreading
from approvals.states import Answer, ApprovalState
from approvals.surface import Surface
from ledger import storage
from ledger.errors import AlreadyDecided, Forbidden, SagaError
from ledger.services import gating
from ledger.states import BlastRadius

logger = logging.getLogger(__name__)

RADII = ("none", BlastRadius.LOW.value, BlastRadius.MEDIUM.value, BlastRadius.HIGH.value)


class StepUpNeeded(Forbidden):
    """The session is good for reading, and too old to decide on this."""

    title = "Your password is needed"


def bar(
    person: Person, request: Approval, answer: Answer, via: Surface, incident: str
) -> SagaError | None:
    """Why this person may not give this answer from there, or None."""
    if incident and answer != Answer.APPROVE:
        return Forbidden("The glass is broken for a yes alone: a no needs nobody else.")
    may = rights.can_break_glass if incident else rights.can_decide
    is_allowed, why_not = may(person, request)
    if not is_allowed:
        return Forbidden(why_not)
    return _presence_fault(request, via, incident)


def needs_password(radius: str, checked_at: datetime | None, now: datetime) -> bool:
    """Whether a page must ask for the password again before it may decide on this."""
    if radius != BlastRadius.HIGH:
        return False
    return checked_at is None or (now - checked_at).total_seconds() > settings.SAGA_STEP_UP_S


def _presence_fault(request: Approval, via: Surface, incident: str) -> SagaError | None:
    now: datetime = storage.the_row("SELECT clock_timestamp() AS now", []).now
    can_change = request.state_seen_at(now) in {ApprovalState.PENDING, ApprovalState.APPROVED}
    if not can_change or request.used_at is not None:
        return None  # nothing can be decided any more: what became of it is told instead
    radius = BlastRadius.HIGH.value if incident else request.blast_radius
    return absent(radius, via, now)


def absent(radius: str, via: Surface, now: datetime) -> Forbidden | None:
    """Why somebody who comes from there is not surely there, for this blast radius, or None."""
    if via.is_page and needs_password(radius, via.checked_at, now):
        return StepUpNeeded(
            "Give your password once more: the blast radius of this is high, and you last gave "
            "it too long ago.",
            step_up=True,
        )
    if via.is_api and RADII.index(radius) > RADII.index(settings.SAGA_TOKENS_DECIDE):
        return Forbidden(
            f"Here a token decides up to a blast radius of {settings.SAGA_TOKENS_DECIDE}, and this "
            f"is {radius}: decide on its page, which asks for the password.",
            step_up=True,
        )
    return None


def voice(person: Person, request: Approval, answer: Answer, incident: str) -> Voice | SagaError:
    """In whose right the answer is given: each right counts once."""
    if incident:
        return Voice(person)
    found = rights.voice_for(person, request, answer)
    if found is None and request.state == ApprovalState.PENDING:
        lent = rights.voices(person, request)[0].right_of.username
        return AlreadyDecided(sentences.right_used(lent), state=request.state)
    return found or Voice(person)  # it is over: the caller finds out how


def is_enough(request: Approval, given: Voice, incident: str) -> bool:
    """Whether this yes is the last that is needed; with broken glass it is."""
    return bool(incident) or rights.is_enough(request, rights.counted_yes(request, also=given))


def recorded(given: Voice, request: Approval, via: Surface, **said: Any) -> Decision:
    """Write the answer down, with both names when a right was lent; with broken glass its review.

    `said`: answer, reason, args_digest, incident. Joins the deciding transaction.
    """
    cover = given.cover
    assert given.person.user_id is not None  # who has no account has no right
    decision = Decision.objects.create(
        approval=request,
        user_id=given.person.user_id,
        username=given.person.username,
        delegation_id=cover.delegation if cover else None,
        stands_for_id=cover.person.user_id if cover else None,
        stands_for_name=cover.person.username if cover else "",
        via=via.name,
        address=via.address,
        checked_at=via.checked_at,
        **said,
    )
    if decision.incident:
        Review.objects.create(approval=request, decision=decision, opened_by_id=decision.user_id)
    return decision


def told(decision: Decision) -> dict[str, Any]:
    """What the entry of a decision says beyond the answer. The address stays with people."""
    return {
        name: value
        for name, value in (
            ("stands_for", decision.stands_for_name),
            ("incident", decision.incident),
        )
        if value
    }


def sound(request: Approval, decision: Decision) -> None:
    """Say loudly that the glass was broken: in the ledger, in messages, and in the log."""
    gating.journal(
        request.saga_id,
        "approval.break_glass",
        step_id=request.step.step_id,
        actor=f"person:{decision.username}",
        payload={
            "approval": str(request.pk),
            "incident": decision.incident,
            "reason": decision.reason,
            "rule": request.rule,
            "needs": request.needs,
        },
    )
    spreading.alarm(request)
    logger.warning(
        "BREAK-GLASS: %s alone approved %s (request %s) for incident %s; a review is open",
        decision.username,
        request.tool,
        request.pk,
        decision.incident,
    )
