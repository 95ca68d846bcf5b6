"""Why an answer did not count: read what is recorded and say exactly that."""

from __future__ import annotations

from dataclasses import dataclass
from uuid import UUID

from approvals import sentences
from approvals.models import Approval, Decision
from approvals.queries import CLOCK, NO_ACCOUNT
from approvals.rights import Person
from approvals.services.expiring import expire
from approvals.states import STATE_OF, Answer, ApprovalState
from ledger.errors import AlreadyDecided, ApprovalExpired, SagaError, StaleDigest
from ledger.services import gating


@dataclass(frozen=True, slots=True)
class Replayed:
    """The same person gave the same answer before: it stands."""


def explain(
    request_id: UUID, person: Person, answer: Answer, args_digest: str, actor: str
) -> Replayed | SagaError:
    """What to tell somebody whose answer changed nothing. Joins the deciding transaction.

    Ends the request when its time is over and no sweep came by, and journals a click that
    came too late under its own name: never as an approval (case D1).
    """
    request = (
        Approval.objects.select_related("step", "superseded_by")
        .annotate(**CLOCK)
        .get(pk=request_id)
    )
    match request.state_seen_at(request.now):
        case ApprovalState.EXPIRED:
            return _late(request, answer, args_digest, actor)
        case ApprovalState.PENDING:
            return StaleDigest(
                sentences.stale(), current_digest=request.args_digest, sent_digest=args_digest
            )
        case ApprovalState.SUPERSEDED:
            return _superseded(request)
        case ApprovalState.CANCELLED:
            said = sentences.cancelled(request.over_at, request.now, request.ended_why)
            return AlreadyDecided(said, state=request.state)
    return _decided(request, person, answer, args_digest)


def _late(request: Approval, answer: Answer, args_digest: str, actor: str) -> ApprovalExpired:
    expire(request.pk)
    gating.journal(
        request.saga_id,
        "approval.late",
        step_id=request.step.step_id,
        actor=actor,
        payload={
            "approval": str(request.pk),
            "answer": answer.value,
            "args_digest": args_digest,
            "expired_at": request.expires_at.isoformat(),
        },
    )
    to = request.escalate_to
    return ApprovalExpired(
        sentences.late_and_passed_on(request.expires_at, request.now, to)
        if to
        else sentences.late(request.expires_at, request.now),
        expired_at=request.expires_at.isoformat(),
    )


def _superseded(request: Approval) -> StaleDigest:
    newer = request.superseded_by
    return StaleDigest(
        sentences.superseded(request.over_at, request.now, request.ended_why),
        superseded_by=str(newer.pk) if newer else None,
        current_digest=newer.args_digest if newer else None,
    )


def _decided(
    request: Approval, person: Person, answer: Answer, args_digest: str
) -> Replayed | SagaError:
    recorded = Decision.objects.filter(approval=request, answer=_answer_of(request.state))
    mine = recorded.filter(user_id=person.user_id or NO_ACCOUNT).first()
    if mine is not None and mine.answer == answer and mine.args_digest == args_digest:
        return Replayed()
    last = mine or recorded.latest("at")
    state = ApprovalState(request.state)
    said = sentences.decided(state, last.username, last.at, request.now, last.reason)
    if request.used_at is not None:
        said = f"{said} {sentences.used(request.used_at, request.now)}"
    return AlreadyDecided(
        said,
        state=request.state,
        decision={
            "by": last.username,
            "answer": last.answer,
            "reason": last.reason,
            "at": last.at.isoformat(),
        },
    )


def _answer_of(state: str) -> Answer:
    return next(answer for answer, leads_to in STATE_OF.items() if leads_to == state)
