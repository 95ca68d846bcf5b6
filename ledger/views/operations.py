from __future__ import annotations

from datetime import timedelta
from uuid import UUID

from django.http import HttpRequest, HttpResponse
from django.utils import timezone

from ledger.errors import InvalidArgs
from ledger.queries import pages_operations, pages_sagas
from ledger.services import freezing
from ledger.tools.installed import registry
from ledger.views import live
from ledger.views.people import bearer_of, pressed, right_to_operate

SCOPES = {
    "tool": "One tool",
    "agent": "One agent",
    "saga": "One saga",
    "all": "Everything",
}
# How long a freeze may last before it lifts itself; "" is until somebody lifts it.
HOURS = {"": "Until lifted", "1": "1 hour", "4": "4 hours", "24": "24 hours"}


def operations(request: HttpRequest) -> HttpResponse:
    now = pages_operations.operations()
    mark = live.mark_of(
        [now.waiting, now.oldest_due, now.later, now.in_flight]
        + [(shift.pk, shift.free, shift.ran, shift.lease_until) for shift in now.shifts]
    )
    if live.has_seen(request, mark):
        return live.unchanged()
    context = {
        "now": now,
        "mark": mark,
        "freezes": pages_operations.active_freezes(),
        "past_freezes": pages_operations.past_freezes(),
        "scopes": SCOPES,
        "hours": HOURS,
        # A saga is frozen by its id, which its own page has.
        "freezable": [*(tool.key for tool in registry().all()), *pages_sagas.agent_names()],
        "asked_scope": request.GET.get("scope", "tool"),
        "asked_value": request.GET.get("value", ""),
        **right_to_operate(request),
    }
    return live.page_or_part(request, "ledger/operations.html", "live", context)


@pressed("ledger:operations")
def freeze(request: HttpRequest) -> str:
    scope = request.POST.get("scope", "")
    value = request.POST.get("value", "").strip() if scope != "all" else ""
    reason = request.POST.get("reason", "")
    hours = request.POST.get("hours", "")
    if scope not in SCOPES or hours not in HOURS:
        raise InvalidArgs("Choose what to freeze and for how long.")
    if scope != "all" and not value:
        raise InvalidArgs(f"Name the {scope} to freeze.")
    found = freezing.freeze(
        scope,
        value,
        reason=reason,
        expires_at=timezone.now() + timedelta(hours=int(hours)) if hours else None,
        actor=bearer_of(request).actor,
    )
    return f"Frozen: {found.value or 'everything'}. Nothing new leaves; what is in flight finishes."


@pressed("ledger:operations")
def lift(request: HttpRequest, freeze_id: UUID) -> str:
    freezing.lift(freeze_id, actor=bearer_of(request).actor)
    return "Lifted. What was waiting goes on."
