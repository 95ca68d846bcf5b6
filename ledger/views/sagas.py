from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from uuid import UUID

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.utils import timezone

from ledger.errors import NotFound
from ledger.queries import archived, freezes, pages_sagas, pages_timeline, turning
from ledger.states import SagaState
from ledger.templatetags.console import ATTEMPT_TONE, measured
from ledger.views import live
from ledger.views.acts import remedies_for
from ledger.views.archives import archived_saga
from ledger.views.axis import Axis, Bar, Stretch, paced
from ledger.views.headline import headline
from ledger.views.people import right_to_operate

DIRECTION_TONE = {"compensate": "back", "correct": "back"}


def saga_list(request: HttpRequest) -> HttpResponse:
    """Search and filters live in the URL, so that a view of the list can be shared."""
    asked = {name: request.GET.get(name, "").strip() for name in ("q", "state", "agent")}
    if asked["state"] not in set(SagaState):
        asked["state"] = ""
    page = pages_sagas.find_sagas(
        state=asked["state"],
        agent=asked["agent"],
        text=asked["q"],
        before=request.GET.get("before", ""),
    )
    context = {
        "page": page,
        "asked": asked,
        "filtered": any(asked.values()),
        "states": list(SagaState),
        "agents": pages_sagas.agent_names(),
        "older": _query(request, before=page.next_cursor) if page.next_cursor else "",
        "is_first": not request.GET.get("before"),
        "newest": _query(request, before=""),
        "archived": archived.find(asked["q"]) if asked["q"] else [],
    }
    return render(request, "ledger/saga_list.html", context)


def _query(request: HttpRequest, **changes: str) -> str:
    query = request.GET.copy()
    query.pop("seen", None)
    for name, value in changes.items():
        if value:
            query[name] = value
        else:
            query.pop(name, None)
    return "?" + query.urlencode()


def _number(text: str) -> int:
    """A position in a list; whatever is not one is the beginning."""
    return int(text) if text.isascii() and text.isdigit() and len(text) < 19 else 0


def saga_detail(request: HttpRequest, saga_id: UUID) -> HttpResponse:
    """The timeline. A poll that has seen the saga's last entry costs one primary-key read."""
    try:
        # Read first: what changes from here on is told by the next poll.
        mark = freezes.mark(saga_id)
        if live.has_seen(request, mark):
            return live.unchanged()
        saga = pages_timeline.saga(saga_id)
    except NotFound:
        return archived_saga(request, saga_id)
    timeline = pages_timeline.timeline(saga, after=_number(request.GET.get("after", "")))
    step_id = request.GET.get("step", "")
    entries, older = pages_timeline.entries(
        saga, before=_number(request.GET.get("before", "")), step_id=step_id
    )
    right = right_to_operate(request)
    context = {
        **right,
        "saga": saga,
        "mark": mark,
        "timeline": timeline,
        "headline": headline(timeline),
        "steps": _with_bars(timeline, right["can_operate"]),
        "entries": paced(entries),
        "only_step": step_id,
        "older": _query(request, before=str(older)) if older else "",
        "newest": _query(request, before="") if request.GET.get("before") else "",
        "more_steps": _query(request, after=str(timeline.more_after)),
        "poll_url": _query(request),
        "next": request.path + _query(request),
        "turned_back": turning.turned_back(saga) if saga.ended_backward_why else None,
        "residue_told": turning.residue_told(saga),
        "took": measured((saga.ended_at or timezone.now()) - saga.created_at),
        **right_to_operate(request),
    }
    ended = saga.ended_at is not None
    return live.page_or_part(request, "ledger/saga_detail.html", "live", context, ended=ended)


def _with_bars(timeline: pages_timeline.Timeline, can_operate: bool) -> list[Mapping[str, Any]]:
    now = timezone.now()
    stretches = {
        attempt.pk: Stretch(attempt.started_at, attempt.ended_at or now)
        for row in timeline.rows
        for attempt in row.tries
    }
    axis = Axis(stretches.values())
    remedies = remedies_for(row.step.pk for row in timeline.rows) if can_operate else {}
    return [
        {
            "row": row,
            "bars": [_bar(axis, attempt, stretches[attempt.pk]) for attempt in row.tries],
            "took": _took(row, now),
            "remedy": remedies.get(row.step.pk),
        }
        for row in timeline.rows
    ]


def _bar(axis: Axis, attempt: Any, stretch: Stretch) -> Bar:
    tone = ATTEMPT_TONE[attempt.state]
    if attempt.state == "done":
        tone = DIRECTION_TONE.get(attempt.direction, tone)
    length = measured(stretch.end - stretch.start)
    title = f"{attempt.direction} {attempt.fence}: {attempt.state}, {length}"
    return axis.bar(stretch, tone, title)


def _took(row: pages_timeline.StepRow, now: Any) -> str:
    forward = [attempt for attempt in row.tries if attempt.direction == "forward"]
    if not forward:
        return ""
    return measured((forward[-1].ended_at or now) - forward[0].started_at)
