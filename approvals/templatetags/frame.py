"""What every page shows around its content: the way around, what waits, and what is stopped."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from django import template
from django.template.context import Context
from django.urls import reverse

from approvals import queries_pages
from approvals.views.viewer import person_of
from ledger.queries import pages_attention, pages_operations

register = template.Library()

# A badge that says more than this says "99+" and has made its point.
COUNT_TO = 100


@dataclass(frozen=True, slots=True)
class Place:
    name: str
    label: str
    icon: str
    begins_group: bool = False
    count: int = 0
    tone: str = "quiet"

    @property
    def url(self) -> str:
        return reverse(self.name)

    @property
    def count_text(self) -> str:
        return f"{COUNT_TO - 1}+" if self.count >= COUNT_TO else str(self.count)


def _places(request: Any) -> list[Place]:
    mine = queries_pages.waiting_count(person_of(request), COUNT_TO)
    cases = pages_attention.waiting_count(COUNT_TO)
    return [
        Place("approvals:inbox", "Inbox", "nav-inbox", count=mine, tone="wait"),
        Place("ledger:attention", "Attention", "nav-attention", count=cases, tone="bad"),
        Place("ledger:saga-list", "Sagas", "nav-sagas"),
        Place("ledger:tools", "Tools", "nav-tools", begins_group=True),
        Place("ledger:agents", "Agents", "nav-agents"),
        Place("approvals:policy", "Policy", "nav-policy"),
        Place("ledger:operations", "Operations", "nav-operations", begins_group=True),
        Place("ledger:ledger", "Ledger", "nav-ledger"),
    ]


# A page below another one lights the same place.
BELONGS_TO = {
    "approvals:approval-detail": "approvals:inbox",
    "approvals:decide": "approvals:inbox",
    "ledger:saga-detail": "ledger:saga-list",
    "ledger:tool": "ledger:tools",
}


@register.inclusion_tag("frame/navigation.html", takes_context=True)
def navigation(context: Context) -> dict[str, Any]:
    request: Any = context["request"]
    match = request.resolver_match
    view = match.view_name if match else ""
    places = _places(request) if request.user.is_authenticated else []
    return {"places": places, "here": BELONGS_TO.get(view, view)}


@register.inclusion_tag("frame/frozen.html", takes_context=True)
def frozen_banner(context: Context) -> dict[str, Any]:
    """Whatever is stopped now is said on every page, so that nobody wonders for long."""
    request: Any = context["request"]
    if not request.user.is_authenticated:
        return {"freezes": []}
    return {"freezes": pages_operations.active_freezes()}
