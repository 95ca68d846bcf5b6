"""Answers to a page that asks whether something is new.

A page's live part names what it has seen. When that is still so, the answer is empty (204)
and the page is not touched: nobody loses focus, an opened detail or typed text. When it
will never change again, 286 tells htmx to stop asking.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import Any

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render

STOP_POLLING = 286
# Fast enough to feel alive, slow enough to cost one primary-key read per open page.
POLL_EVERY = "2s"


def is_poll(request: HttpRequest) -> bool:
    return bool(getattr(request, "htmx", False)) and "seen" in request.GET


def has_seen(request: HttpRequest, mark: object) -> bool:
    return is_poll(request) and request.GET["seen"] == str(mark)


def unchanged(*, ended: bool = False) -> HttpResponse:
    return HttpResponse(status=STOP_POLLING if ended else 204)


def mark_of(parts: Iterable[Any]) -> str:
    """A short mark that changes when any part does."""
    return hashlib.sha256(repr(list(parts)).encode()).hexdigest()[:16]


def page_or_part(
    request: HttpRequest, template: str, part: str, context: dict[str, Any], *, ended: bool = False
) -> HttpResponse:
    """The whole page, or for a poll only the named partial of the same template."""
    context = context | {"poll_every": "" if ended else POLL_EVERY}
    if not is_poll(request):
        return render(request, template, context)
    status = STOP_POLLING if ended else 200
    return render(request, f"{template}#{part}", context, status=status)
