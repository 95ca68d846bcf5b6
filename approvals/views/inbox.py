from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from django.http import HttpRequest, HttpResponse

from approvals import queries_pages, queries_policy, queries_rejections
from approvals.views.viewer import person_of
from ledger.views import live

TABS = {
    "mine": "Waits for me",
    "everyone": "Everything open",
    "by-me": "My answers",
    "decided": "Decided",
}
# Only there while there is something in it: nobody shall have to look for nothing.
UNROUTABLE = "unroutable"
_OPEN_TABS = ("mine", "everyone", UNROUTABLE)


def inbox(request: HttpRequest) -> HttpResponse:
    """What waits for people, and what became of what did."""
    tab = request.GET.get("tab", "mine")
    is_looked_for = request.GET.get("tab") == UNROUTABLE or not live.is_poll(request)
    lost = queries_policy.unroutable() if is_looked_for else []
    tabs = {**TABS, UNROUTABLE: f"Nobody can answer ({len(lost)})"} if lost else TABS
    if tab not in {*TABS, UNROUTABLE}:
        tab = "mine"
    is_open_tab = tab in _OPEN_TABS
    page = _page(request, tab, lost)
    mark = live.mark_of((row.id, row.state, len(row.answers)) for row in page.rows)
    if live.has_seen(request, mark):
        return live.unchanged()
    context = {
        "tab": tab,
        "tabs": tabs,
        "missing": {one.request.pk: one.missing for one in lost},
        "is_open_tab": is_open_tab,
        "variants": queries_rejections.rejected_variants([row.id for row in page.rows])
        if is_open_tab
        else {},
        "rows": page.rows,
        "mark": mark,
        "in_bulk": is_open_tab and any(row.can_decide for row in page.rows),
        "is_first": not request.GET.get("before"),
        "next_cursor": page.next_cursor,
        "others_wait": tab == "mine" and not page.rows and queries_pages.anything_waits(),
    }
    ended = not is_open_tab
    return live.page_or_part(request, "approvals/inbox.html", "live", context, ended=ended)


def _page(
    request: HttpRequest, tab: str, lost: Sequence[queries_policy.Unroutable]
) -> queries_pages.InboxPage:
    person = person_of(request)
    if tab == UNROUTABLE:
        return queries_pages.these([one.request.pk for one in lost], person)
    if tab == "mine":
        return queries_pages.waiting_for(person)
    if tab == "everyone":
        return queries_pages.waiting(person)
    before = _cursor(request.GET.get("before", ""))
    return queries_pages.ended(person, before=before, mine=tab == "by-me")


def _cursor(text: str) -> UUID | None:
    try:
        return UUID(text)
    except ValueError:
        return None
