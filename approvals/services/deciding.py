"""Answering a request: one conditional UPDATE has one winner, and everybody else is told the truth.

The saga's row is locked first, as everywhere in the ledger; decision, entry and what follows
from it are one transaction. Facts that must stay although the answer was refused (a late
click) are written in it too, so a refusal is returned and raised only after the commit.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal
from uuid import UUID

from approvals import rights, sentences
from approvals.models import Approval, Decision
from approvals.queries import NO_ACCOUNT
from approvals.services.explaining import Replayed, explain
from approvals.services.locking import lock_saga_of
from approvals.states import STATE_OF, Answer, ApprovalState
from ledger import faultpoints, storage
from ledger.bearer import Bearer
from ledger.errors import AlreadyDecided, Forbidden, InvalidArgs, NotFound, SagaError
from ledger.models.fields import ClockTimestamp
from ledger.queries.documents import stamp
from ledger.reasons import reason_fault
from ledger.services import gating
from ledger.services.unit import Superseded
from ledger.states import Direction

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


@dataclass(frozen=True, slots=True)
class Click:
    """What a person sent: an answer to what they were shown."""

    bearer: Bearer
    request: UUID
    answer: Answer
    args_digest: str
    reason: str
    via: Literal["page", "api"]


@dataclass(frozen=True, slots=True)
class Decided:
    """It is recorded. `replayed`: it had been, by the same person, and nothing changed."""

    request: UUID
    replayed: bool


def approve(
    bearer: Bearer,
    approval_id: UUID,
    *,
    args_digest: str,
    reason: str = "",
    via: Literal["page", "api"] = "page",
) -> Decided:
    """Say yes to exactly what has this digest.

    Raises NotFound, Forbidden, InvalidArgs (the rule wants a reason), StaleDigest,
    AlreadyDecided, ApprovalExpired.
    """
    return _decide(Click(bearer, approval_id, Answer.APPROVE, args_digest, reason, via))


def reject(
    bearer: Bearer,
    approval_id: UUID,
    *,
    args_digest: str,
    reason: str,
    via: Literal["page", "api"] = "page",
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
    via: Literal["page", "api"] = "page",
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
    request = _locked(click.request)
    if request is None:
        return NotFound(f"There is no request {click.request}.")
    person = rights.who(click.bearer)
    is_allowed, why_not = rights.can_decide(person, request)
    if not is_allowed:
        return Forbidden(why_not)
    if fault := _fault(click, request):
        return fault
    if _has_voted(person, click, request):
        return Decided(request.pk, replayed=True)
    state = STATE_OF[click.answer]
    if click.answer == Answer.APPROVE:
        yes = rights.counted_yes(request, also=person)
        if not rights.is_enough(request, yes):
            state = ApprovalState.PENDING
    recorded = storage.row(DECIDE, _parameters(click, state))
    if recorded is None:
        found = explain(request.pk, person, click.answer, click.args_digest, click.bearer.actor)
        return Decided(request.pk, replayed=True) if isinstance(found, Replayed) else found
    assert person.user_id is not None  # who has no account has no right, above
    decision = Decision.objects.create(
        approval=request,
        user_id=person.user_id,
        username=person.username,
        answer=click.answer,
        reason=click.reason.strip(),
        args_digest=click.args_digest,
        via=click.via,
    )
    request.yes_until = recorded.yes_until
    _follow_up(click, request, decision, state)
    faultpoints.reached("P23", click.answer)
    return Decided(request.pk, replayed=False)


def _locked(request: UUID) -> Approval | None:
    """The request under its saga's lock, read after the lock was had."""
    if not lock_saga_of(request):
        return None
    return Approval.objects.select_related("saga__agent", "step").get(pk=request)


def _fault(click: Click, request: Approval) -> InvalidArgs | None:
    """What is wrong with the answer itself, whatever state the request is in."""
    needs_reason = click.answer != Answer.APPROVE or request.require_reason
    fault = reason_fault(click.reason) if needs_reason or click.reason.strip() else ""
    if fault:
        return InvalidArgs(
            "A reason is needed: say why in `reason`. The agent and the ledger keep it. "
            f"It {fault}.",
            errors=[{"pointer": "/reason", "detail": fault}],
        )
    if click.answer == Answer.CHANGE and request.direction != Direction.FORWARD:
        return InvalidArgs(
            "Only the agent's own step can be sent back for a change. This is the answer to its "
            "effect: approve or reject it.",
            errors=[],
        )
    return None


def _has_voted(person: rights.Person, click: Click, request: Approval) -> bool:
    """Whether this person's same yes is already one of several that are still being gathered."""
    return (
        request.state == ApprovalState.PENDING
        and Decision.objects.filter(
            approval=request,
            user_id=person.user_id or NO_ACCOUNT,
            answer=click.answer,
            args_digest=click.args_digest,
        ).exists()
    )


def _parameters(click: Click, state: ApprovalState) -> dict[str, Any]:
    return {
        "id": click.request,
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


def _withdraw(click: Click) -> AlreadyDecided:
    """The step stopped waiting and its request did not: end it, and say so."""
    still_asked = Approval.objects.filter(pk=click.request, state=ApprovalState.PENDING)
    still_asked.update(
        state=ApprovalState.CANCELLED, ended_at=ClockTimestamp(), ended_why=sentences.withdrawn()
    )
    return AlreadyDecided(sentences.withdrawn(), state=ApprovalState.CANCELLED.value)
