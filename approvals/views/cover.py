from __future__ import annotations

from datetime import UTC, datetime
from uuid import UUID

from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_http_methods, require_POST

from approvals import queries_who
from approvals.services import delegating
from ledger.errors import InvalidArgs, SagaError
from ledger.views.people import bearer_of


@require_http_methods(["GET", "HEAD", "POST"])
def cover(request: HttpRequest) -> HttpResponse:
    """Whom I stand in for, who stands in for me, and a form to lend my right."""
    if request.method != "POST":
        return _page(request)
    try:
        delegating.delegate(
            bearer_of(request),
            request.POST.get("to", ""),
            reason=request.POST.get("reason", ""),
            starts_at=_time(request, "starts_at"),
            ends_at=_time(request, "ends_at") or datetime.now(UTC),
        )
    except SagaError as error:
        return _page(request, error)
    return redirect("approvals:cover")


@require_POST
def withdraw(request: HttpRequest, delegation_id: UUID) -> HttpResponse:
    """Take my right back."""
    try:
        delegating.withdraw(bearer_of(request), delegation_id)
    except SagaError as error:
        return _page(request, error)
    return redirect("approvals:cover")


def _time(request: HttpRequest, field: str) -> datetime | None:
    """A time of the form, in UTC as its label says; None when it was left empty."""
    given = request.POST.get(field, "").strip()
    if not given:
        return None
    try:
        return datetime.fromisoformat(given).replace(tzinfo=UTC)
    except ValueError:
        why = "write it as 2026-01-31T18:00, in UTC"
        raise InvalidArgs(
            f"`{field}`: {why}.", errors=[{"pointer": f"/{field}", "detail": why}]
        ) from None


def _page(request: HttpRequest, refusal: SagaError | None = None) -> HttpResponse:
    user_id = bearer_of(request).user_id or 0
    context = {
        "rows": queries_who.delegations_of(user_id),
        "others": queries_who.others(user_id),
        "refusal": refusal,
        "typed": request.POST,
    }
    status = refusal.status if refusal else 200
    return render(request, "approvals/cover.html", context, status=status)
