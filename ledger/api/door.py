"""What every request of the API passes, whatever it asks for.

The frame around each operation: it answers only under a host of its own (400) and in JSON (406),
turns a wrong method into a problem (405), measures, and lets no exception out as HTML.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable
from http import HTTPStatus
from typing import Any

from django.core.exceptions import DisallowedHost
from django.http import HttpRequest, HttpResponse
from django.http.response import HttpResponseBase, HttpResponseNotAllowed
from django.views.decorators.csrf import csrf_exempt

from ledger import metrics
from ledger.api import addresses
from ledger.api.problems import answer_error, plain_problem, problem
from ledger.errors import NotFound

View = Callable[..., HttpResponseBase]


def framed(view: View, route: str) -> View:
    """`view` with the frame around it; `route` is its pattern, for the metrics."""

    @functools.wraps(view)
    def entered(request: HttpRequest, *args: Any, **path: Any) -> HttpResponseBase:
        started = time.perf_counter()
        response = _answer(view, request, *args, **path)
        took = time.perf_counter() - started
        metrics.REQUESTS.labels(request.method, route, str(response.status_code)).observe(took)
        return response

    return entered


def _answer(view: View, request: HttpRequest, *args: Any, **path: Any) -> HttpResponseBase:
    # Answers hold addresses made of the Host. One that is refused only there is refused too late:
    # what was asked is stored by then, and maybe done.
    if not _is_ours(request):
        return plain_problem(
            HTTPStatus.BAD_REQUEST,
            "This console does not answer under the Host that was sent; nothing was stored. Use a "
            "name of its ALLOWED_HOSTS, or have yours added there.",
        )
    if not _takes_json(request.META.get("HTTP_ACCEPT", "")):
        return plain_problem(
            HTTPStatus.NOT_ACCEPTABLE, "Answers are application/json; accept that, or */*."
        )
    try:
        response = view(request, *args, **path)
    except Exception as error:
        return answer_error(request, error)
    if isinstance(response, HttpResponseNotAllowed):
        allowed = response.headers["Allow"]
        return plain_problem(
            HTTPStatus.METHOD_NOT_ALLOWED,
            f"{request.method} is not for this address; use {allowed}.",
            {"Allow": allowed},
        )
    return response


def _is_ours(request: HttpRequest) -> bool:
    try:
        addresses.origin(request)
    except DisallowedHost:
        return False
    return True


def _takes_json(accept: str) -> bool:
    if not accept or "*/*" in accept:
        return True
    accepted = accept.lower()
    return "json" in accepted or "application/*" in accepted


@csrf_exempt
def no_such_address(request: HttpRequest) -> HttpResponse:
    """Every other path below /api/: a problem document and not a page."""
    return problem(
        NotFound(f"There is nothing at {request.path}. See /api/v1/openapi.json for what there is.")
    )
