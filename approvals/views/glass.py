from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from uuid import UUID

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_POST

from approvals import queries_who
from approvals.services import deciding, reviewing
from approvals.views import detail, presence
from ledger.errors import SagaError
from ledger.views.people import bearer_of


@require_POST
def break_glass(request: HttpRequest, approval_id: UUID) -> HttpResponse:
    """Say yes alone, in an incident. The review that it opens is shown on every page."""
    try:
        detail.check_alone(request, approval_id)
        presence.step_up(request)
        deciding.break_glass(
            bearer_of(request),
            approval_id,
            args_digest=request.POST.get("args_digest", ""),
            incident=request.POST.get("incident", ""),
            reason=request.POST.get("reason", ""),
            via=presence.surface(request),
        )
    except SagaError as error:
        return detail.refused(request, approval_id, error)
    messages.warning(request, "The glass is broken. Somebody else must close the review.")
    return redirect("approvals:approval-detail", approval_id)


def reviews(request: HttpRequest) -> HttpResponse:
    """What was allowed by one person alone, and has not been looked at by another yet."""
    return _page(request)


@require_POST
def close_review(request: HttpRequest, review_id: UUID) -> HttpResponse:
    """Say what was found, and end it."""
    finding = request.POST.get("finding", "")
    try:
        reviewing.close(bearer_of(request), review_id, finding=finding)
    except SagaError as error:
        return _page(request, error, {"pk": review_id, "finding": finding})
    messages.success(request, "The review is closed; the saga's ledger keeps your finding.")
    return redirect("approvals:reviews")


def _page(
    request: HttpRequest,
    refusal: SagaError | None = None,
    typed: Mapping[str, Any] | None = None,
) -> HttpResponse:
    me = bearer_of(request)
    waiting = queries_who.reviews(is_open=True)
    context = {
        "waiting": [(one, reviewing.why_not_close(me, one)) for one in waiting],
        "closed": queries_who.reviews(is_open=False),
        "refusal": refusal,
        "typed": typed,
    }
    status = refusal.status if refusal else 200
    return render(request, "approvals/reviews.html", context, status=status)
