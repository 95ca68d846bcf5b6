"""Recording one answer: the conditional UPDATE that has one winner, and what follows from it."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from approvals import rights
from approvals.models import Approval, Decision
from approvals.queries import NO_ACCOUNT
from approvals.services import entitling
from approvals.services.clicks import Click, Decided
from approvals.services.explaining import explain
from approvals.services.locking import lock_saga_of
from approvals.states import STATE_OF, Answer, ApprovalState
from ledger import faultpoints, storage
from ledger.errors import SagaError
from ledger.queries.documents import stamp
from ledger.services import gating

# Until a yes is used, a later no beats it (design section 6): then `approved` counts as open.
# One reading of the clock, so that what is decided in time also says so.
DECIDE = """
UPDATE approvals_approval SET state = %(state)s::text,
    decided_at = CASE WHEN %(state)s::text = 'pending' THEN NULL ELSE c.now END,
    ended_at = CASE WHEN %(state)s::text = 'pending' THEN NULL ELSE c.now END,
    runs_from = CASE WHEN %(state)s::text = 'approved' THEN c.now + delay ELSE runs_from END,
    yes_until = CASE WHEN %(state)s::text = 'approved' THEN c.now + delay + lasts
        ELSE yes_until END
FROM (SELECT clock_timestamp() AS now) c
WHERE id = %(id)s AND args_digest = %(digest)s AND (
    state = 'pending' AND expires_at > c.now
    OR %(is_no)s::boolean AND state = 'approved' AND used_at IS NULL
)
RETURNING yes_until
"""


def locked(request: UUID) -> Approval | None:
    """The request under its saga's lock, read after the lock was had."""
    if not lock_saga_of(request):
        return None
    return Approval.objects.select_related("saga__agent", "step").get(pk=request)


def answer(click: Click, request: Approval, person: rights.Person) -> Decided | SagaError:
    """Record the answer to what was shown, or say why it does not count.

    The caller holds the saga's lock. Raises Superseded.
    """
    if has_voted(person, click, request):
        return Decided(request.pk, replayed=True)
    given = entitling.voice(person, request, click.answer, click.incident)
    if isinstance(given, SagaError):
        return given
    if not say(click, request, given):
        return explain(click, person)
    faultpoints.reached("P23", click.answer)
    return Decided(request.pk, replayed=False)


def has_voted(person: rights.Person, click: Click, request: Approval) -> bool:
    """Whether this person's same yes is already one of several that are still being gathered."""
    return (
        request.state == ApprovalState.PENDING
        and not click.incident
        and Decision.objects.filter(
            approval=request,
            user_id=person.user_id or NO_ACCOUNT,
            answer=click.answer,
            args_digest=click.args_digest,
        ).exists()
    )


def say(click: Click, request: Approval, given: rights.Voice) -> bool:
    """Record the answer and what it does; False when the request takes it no more.

    The caller holds the saga's lock. Raises Superseded.
    """
    state = STATE_OF[click.answer]
    is_yes = click.answer == Answer.APPROVE
    if is_yes and not entitling.is_enough(request, given, click.incident):
        state = ApprovalState.PENDING
    recorded = storage.row(DECIDE, _parameters(click, request, state))
    if recorded is None:
        return False
    decision = entitling.recorded(
        given,
        request,
        click.via,
        answer=click.answer,
        reason=click.reason.strip(),
        args_digest=click.args_digest,
        incident=click.incident,
    )
    request.yes_until = recorded.yes_until
    _follow_up(click, request, decision, state)
    return True


def _parameters(click: Click, request: Approval, state: ApprovalState) -> dict[str, Any]:
    return {
        "id": request.pk,
        "state": state.value,
        "digest": click.args_digest,
        "is_no": click.answer == Answer.REJECT,
    }


def _follow_up(click: Click, request: Approval, decision: Decision, state: ApprovalState) -> None:
    """The ledger's part: the entry, and what the answer does to the step."""
    actor = click.bearer.actor
    told: dict[str, Any] = {
        "approval": str(request.pk),
        "decision": str(decision.pk),
        "answer": decision.answer,
        "args_digest": decision.args_digest,
        "policy": request.policy_digest,
        "rule": request.rule,
        "reason": decision.reason,
        "via": decision.via,
        **entitling.told(decision),
    }
    match state:
        case ApprovalState.APPROVED:
            # Until when it may run: the ledger alone must be able to tell a run in time.
            told["yes_until"] = stamp(request.yes_until)
            delay_s = request.delay.total_seconds()
            if delay_s:
                told["delay_s"] = delay_s
            gating.release(
                request.step_id, request.direction, actor=actor, payload=told, delay_s=delay_s
            )
        case ApprovalState.REJECTED:
            gating.refuse(
                request.step_id, request.direction, why="rejected", actor=actor, payload=told
            )
        case ApprovalState.CHANGE_REQUESTED:
            gating.ask_for_change(request.step_id, text=decision.reason, actor=actor, payload=told)
        case _:
            gating.journal(
                request.saga_id,
                "approval.voted",
                step_id=request.step.step_id,
                actor=actor,
                payload=told,
            )
    if decision.incident:
        entitling.sound(request, decision)
