"""What every page shows around its content: the way around, what waits, and what is stopped."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from django import template
from django.template.context import Context
from django.urls import reverse

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
    is_here: bool = False

    @property
    def url(self) -> str:
        return reverse(self.name)

    @property
    def count_text(self) -> str:
        return f"{COUNT_TO - 1}+" if self.count >= COUNT_TO else str(self.count)


def _places(here: str) -> list[Place]:
    waiting = pages_attention.waiting_count(COUNT_TO)
    places = [
        Place("approvals:inbox", "Inbox", "nav-inbox"),
        Place("ledger:attention", "Attention", "nav-attention", count=waiting, tone="bad"),
        Place("ledger:saga-list", "Sagas", "nav-sagas"),
        Place("ledger:tools", "Tools", "nav-tools", begins_group=True),
        Place("ledger:agents", "Agents", "nav-agents"),
        Place("ledger:operations", "Operations", "nav-operations", begins_group=True),
        Place("ledger:ledger", "Ledger", "nav-ledger"),
    ]
    return places


# A page below another one lights the same place.
BELONGS_TO = {
    "approvals:approval-detail": "approvals:inbox",
    "approvals:decide": "approvals:inbox",
    "ledger:saga-detail": "ledger:saga-list",
}


@register.inclusion_tag("frame/navigation.html", takes_context=True)
def navigation(context: Context) -> dict[str, Any]:
    request: Any = context["request"]
    match = request.resolver_match
    view = match.view_name if match else ""
    return {"places": _places(view), "here": BELONGS_TO.get(view, view)}


@register.inclusion_tag("frame/frozen.html", takes_context=True)
def frozen_banner(context: Context) -> dict[str, Any]:
    """Whatever is stopped now is said on every page, so that nobody wonders for long."""
    request: Any = context["request"]
    if not request.user.is_authenticated:
        return {"freezes": []}
    return {"freezes": pages_operations.active_freezes()}
