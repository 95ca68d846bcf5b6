from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from uuid import UUID

from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.urls import reverse
from django.views.decorators.http import require_http_methods

from approvals import policy, queries_pages, queries_policy, queries_rejections, rights
from approvals.queries_pages import RequestRow
from approvals.services import deciding, reopening
from approvals.states import Answer, ApprovalState
from approvals.views import differences, outcomes, presence, undoing
from approvals.views.viewer import person_of
from ledger.errors import AlreadyDecided, InvalidArgs, NotFound, SagaError
from ledger.queries import freezes, pages_timeline
from ledger.states import BlastRadius, Direction
from ledger.templatetags.values import folded_paths
from ledger.views import live
from ledger.views.people import bearer_of

_DECIDE = {
    Answer.APPROVE.value: deciding.approve,
    Answer.REJECT.value: deciding.reject,
    Answer.CHANGE.value: deciding.request_change,
}


def approval_detail(request: HttpRequest, approval_id: UUID) -> HttpResponse:
    """Exactly what would run, what a no would cost, and the box to decide in."""
    return page(request, row_of(request, approval_id))


@require_http_methods(["GET", "HEAD", "POST"])
def decide(request: HttpRequest, approval_id: UUID) -> HttpResponse:
    """One answer, bound to the digest that the person saw. A refusal is shown in its own words.

    Only a POST decides; whoever opens or reloads this address is shown the request.
    """
    if request.method != "POST":
        return redirect("approvals:approval-detail", approval_id)
    answer = request.POST.get("answer", "")
    row = row_of(request, approval_id)
    try:
        _check(request, row, answer)
        presence.step_up(request)
        _DECIDE[answer](
            bearer_of(request),
            approval_id,
            args_digest=request.POST.get("args_digest", ""),
            reason=request.POST.get("reason", "").strip(),
            via=presence.surface(request),
        )
    except SagaError as error:
        return page(request, row_of(request, approval_id), refusal=error)
    return redirect("approvals:approval-detail", approval_id)


def row_of(request: HttpRequest, approval_id: UUID) -> RequestRow:
    """One request as this person sees it."""
    try:
        return queries_pages.request_row(approval_id, person_of(request))
    except NotFound as error:
        raise Http404(error.detail) from None


def _check(request: HttpRequest, row: RequestRow, answer: str) -> None:
    """What the form itself asks of a person before an answer counts."""
    if answer not in _DECIDE:
        raise InvalidArgs(f"The answer is one of {', '.join(_DECIDE)}.")
    if answer != Answer.APPROVE:
        return
    check_yes(request, row, row.args)


def check_yes(request: HttpRequest, row: RequestRow, args: Any) -> None:
    """What a yes to `args` asks of a person: to have understood, and to have read."""
    if row.approval.is_final and request.POST.get("understood") != "yes":
        raise InvalidArgs("Tick that you understand that this cannot be undone, then approve.")
    _check_read(request, args)


def _check_read(request: HttpRequest, args: Any) -> None:
    unread = set(folded_paths(args)) - set(request.POST.getlist("read"))
    if unread:
        raise InvalidArgs(f"Open and tick every folded part first: {', '.join(sorted(unread))}.")


def check_alone(request: HttpRequest, approval_id: UUID) -> None:
    """What the form of a broken glass asks of a person before it counts. Raises InvalidArgs."""
    if request.POST.get("understood") != "yes":
        raise InvalidArgs("Tick that you understand that a review will be open, then break it.")
    _check_read(request, row_of(request, approval_id).args)


def _can_break_glass(row: RequestRow) -> bool:
    """Who can still answer as everybody does has no reason to."""
    return (
        row.is_open and not row.can_decide and rights.can_break_glass(row.person, row.approval)[0]
    )


def _can_reopen(row: RequestRow) -> bool:
    """Where the saga takes no more steps, nobody could ask again: the service refuses it, too."""
    rejected = row.state == ApprovalState.REJECTED
    if not rejected or row.approval.saga.why_no_more_steps:
        return False
    return rights.can_decide(row.person, row.approval)[0]


def refused(request: HttpRequest, approval_id: UUID, error: SagaError) -> HttpResponse:
    """The page again, with the reason why nothing was decided."""
    return page(request, row_of(request, approval_id), refusal=error)


def page(
    request: HttpRequest, row: RequestRow, *, refusal: SagaError | None = None
) -> HttpResponse:
    """The request, with what became of an answer that was not taken."""
    saga = row.approval.saga
    held = freezes.holding(saga, row.approval.tool) if outcomes.may_be_held(row) else ""
    mark = live.mark_of(
        [row.state, len(row.answers), row.step.state, row.step.attempts, row.is_delayed, held]
    )
    if live.has_seen(request, mark):
        return live.unchanged()
    steps = outcomes.steps_on_no(row, pages_timeline.brief(saga))
    forward = row.approval.direction == Direction.FORWARD
    before = queries_rejections.edited(row.approval)
    reasons, uses = queries_policy.explained(row.approval)
    declared = row.definition
    context: dict[str, Any] = {
        "row": row,
        "step": row.step,
        "saga": saga,
        "saga_url": reverse("ledger:saga-detail", args=[saga.pk]),
        "decide_url": reverse("approvals:decide", args=[row.id]),
        "mark": mark,
        "steps": steps,
        "cost_of_no": outcomes.cost_of_no(row, steps) if row.is_open else "",
        "votes": outcomes.votes(row),
        "needs": queries_pages.still_needed(row),
        "outcome": outcomes.banner(row, held),
        "args_title": outcomes.args_title(row),
        "target": undoing.target(row, declared),
        "definition": declared,
        "undo": undoing.undo(row, declared),
        "reasons": reasons,
        "uses": uses if row.is_open else [],
        "policy_is_now": row.approval.policy_digest == policy.current().digest,
        "unroutable": queries_policy.why_unroutable(row.approval) if row.is_open else "",
        "can_break_glass": _can_break_glass(row),
        "needs_password_for_glass": presence.needs_password(request, BlastRadius.HIGH),
        "needs_password": presence.needs_password(request, row.approval.blast_radius),
        "needs_understanding": row.approval.is_final,
        "folded": folded_paths(row.args),
        "can_ask_for_change": forward,
        "refusal": refusal,
        "refusal_tone": _tone(request, refusal),
        "can_edit": row.is_open and row.can_decide and forward,
        "variants": queries_rejections.rejected_variants([row.id]).get(row.id, 0),
        "edited": before,
        "changes": differences.changed(before.args, row.args) if before else [],
        "reopened": queries_rejections.reopened(row.approval),
        "can_reopen": forward and _can_reopen(row),
        "typed": _typed(request) if refusal else {},
        "wrong_password": presence.password_fault(refusal),
        "is_poll": live.is_poll(request),
    }
    response = live.page_or_part(
        request,
        "approvals/approval_detail.html",
        "outcome",
        context,
        ended=outcomes.is_settled(row),
    )
    if refusal:
        response.status_code = refusal.status
    return response


def _tone(request: HttpRequest, refusal: SagaError | None) -> str:
    """Who wanted what somebody else has just done made no mistake (case B1)."""
    if isinstance(refusal, AlreadyDecided):
        decision = refusal.extra.get("decision") or {}
        if decision.get("answer") == request.POST.get("answer"):
            return "quiet"
    return "bad"


def _typed(request: HttpRequest) -> Mapping[str, str]:
    """What was written into the form that was refused, so that nobody writes it twice."""
    if "incident" in request.POST:
        return {"glass": request.POST.get("reason", ""), "incident": request.POST["incident"]}
    if "answer" not in request.POST:
        return {"reopen": request.POST.get("reason", "")}
    box = "approve" if request.POST.get("answer") == Answer.APPROVE else "refuse"
    return {box: request.POST.get("reason", "")}


@require_http_methods(["POST"])
def reopen(request: HttpRequest, approval_id: UUID) -> HttpResponse:
    """Let the agent ask again for what was rejected here."""
    row = row_of(request, approval_id)
    try:
        presence.step_up(request)
        reopening.reopen(
            bearer_of(request),
            approval_id,
            args_digest=request.POST.get("args_digest", ""),
            reason=request.POST.get("reason", ""),
            via=presence.surface(request),
        )
    except SagaError as error:
        return page(request, row, refusal=error)
    return redirect("approvals:approval-detail", approval_id)
