"""Why an answer did not count: read what is recorded and say exactly that.

Every answer that came after the end is kept in the ledger under its own name, `approval.late`,
once for each person and answer: never as an approval (case D1).
"""

from __future__ import annotations

from typing import Any

from approvals import sentences
from approvals.models import Approval, Decision
from approvals.queries import CLOCK, NO_ACCOUNT
from approvals.rights import Person
from approvals.services.clicks import Click, Decided
from approvals.services.expiring import CANCEL, expire
from approvals.states import STATE_OF, Answer, ApprovalState
from ledger import storage
from ledger.errors import AlreadyDecided, ApprovalExpired, InvalidArgs, SagaError, StaleDigest
from ledger.services import gating, gating_edits

_NOTED = """
SELECT 1 FROM ledger_entry WHERE saga_id = %s AND step_id = %s AND kind = 'approval.late'
    AND actor = %s AND payload::jsonb @> jsonb_build_object(
        'approval', %s::text, 'answer', %s::text, 'was', %s::text, 'edited', %s::boolean)
LIMIT 1
"""


def explain(click: Click, person: Person) -> Decided | SagaError:
    """What to tell somebody whose answer changed nothing. Joins the deciding transaction.

    Ends the request when its time is over and no sweep came by.
    """
    request = _read(click)
    match request.state_seen_at(request.now):
        case ApprovalState.EXPIRED:
            return _late(click, request)
        case ApprovalState.PENDING:
            return StaleDigest(
                sentences.stale(), current_digest=request.args_digest, sent_digest=click.args_digest
            )
        case ApprovalState.SUPERSEDED:
            return _superseded(click, request, person)
        case ApprovalState.CANCELLED:
            return _withdrawn(click, request)
    return _decided(click, request, person)


def gone(click: Click) -> SagaError:
    """The step waits no more, so the request is withdrawn now. Joins the caller's transaction."""
    storage.execute(CANCEL, [click.request])
    return _withdrawn(click, _read(click))


def _read(click: Click) -> Approval:
    found: Approval = (
        Approval.objects.select_related("step", "superseded_by")
        .annotate(**CLOCK)
        .get(pk=click.request)
    )
    return found


def _note(click: Click, request: Approval, state: ApprovalState, **more: Any) -> None:
    """Keep that it was clicked, and what the request was by then."""
    edited = click.args is not None
    name, actor = request.step.step_id, click.bearer.actor
    about = [str(request.pk), click.answer.value, state.value, edited]
    if storage.row(_NOTED, [request.saga_id, name, actor, *about]) is not None:
        return
    gating.journal(
        request.saga_id,
        "approval.late",
        step_id=name,
        actor=actor,
        payload={
            "approval": str(request.pk),
            "answer": click.answer.value,
            "edited": edited,
            "args_digest": click.args_digest,
            "was": state.value,
            **more,
        },
    )


def _late(click: Click, request: Approval) -> ApprovalExpired:
    expire(request.pk)
    expired_at = request.expires_at.isoformat()
    _note(click, request, ApprovalState.EXPIRED, expired_at=expired_at)
    to = request.escalate_to
    return ApprovalExpired(
        sentences.late_and_passed_on(request.expires_at, request.now, to)
        if to
        else sentences.late(request.expires_at, request.now),
        expired_at=expired_at,
        state=ApprovalState.EXPIRED.value,
    )


def _withdrawn(click: Click, request: Approval) -> ApprovalExpired:
    _note(click, request, ApprovalState.CANCELLED)
    return ApprovalExpired(
        sentences.too_late_for_withdrawn(request.over_at, request.now, request.ended_why),
        state=ApprovalState.CANCELLED.value,
    )


def _superseded(click: Click, request: Approval, person: Person) -> Decided | SagaError:
    newer = request.superseded_by
    if newer is not None and _is_my_edit(click, newer, person):
        return Decided(newer.pk, replayed=True)
    _note(click, request, ApprovalState.SUPERSEDED)
    return StaleDigest(
        sentences.superseded(request.over_at, request.now, request.ended_why),
        superseded_by=str(newer.pk) if newer else None,
        current_digest=newer.args_digest if newer else None,
    )


def _is_my_edit(click: Click, newer: Approval, person: Person) -> bool:
    """Whether this is the very edit, sent twice, by which this person replaced the request."""
    if click.args is None:
        return False
    mine = Decision.objects.filter(
        approval=newer, user_id=person.user_id or NO_ACCOUNT, answer=Answer.APPROVE
    )
    try:
        return mine.exists() and (
            gating_edits.digest_of(newer.step_id, click.args) == newer.args_digest
        )
    except InvalidArgs:
        return False


def _decided(click: Click, request: Approval, person: Person) -> Decided | SagaError:
    recorded = Decision.objects.filter(approval=request, answer=_answer_of(request.state))
    mine = recorded.filter(user_id=person.user_id or NO_ACCOUNT).first()
    if mine is not None and click.args is None:
        sent = (click.answer, click.args_digest)
        if (mine.answer, mine.args_digest) == sent:
            return Decided(request.pk, replayed=True)
    last = mine or recorded.latest("at")
    state = ApprovalState(request.state)
    _note(click, request, state)
    said = sentences.decided(
        state,
        last.username,
        last.at,
        request.now,
        last.reason,
        is_own=person.user_id is not None and last.user_id == person.user_id,
    )
    if request.used_at is not None:
        said = f"{said} {sentences.used(request.used_at, request.now)}"
    elif state == ApprovalState.APPROVED:
        said = f"{said} {sentences.unused(request.runs_from, request.now)}"
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
