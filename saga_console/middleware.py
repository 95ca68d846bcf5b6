"""Two doors, two stacks: pages get sessions, CSRF and the rest; the API gets none of it.

An agent's request carries a bearer token and no cookie, so session, CSRF, messages and login
have nothing to do there, and time is what agents feel. Each of Django's middlewares stays in
`MIDDLEWARE`, where its system checks look for it, but steps aside for `/api/`.
Measured: docs/decisions/0013-two-doors.md.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from django.contrib.auth.middleware import AuthenticationMiddleware, LoginRequiredMiddleware
from django.contrib.messages.middleware import MessageMiddleware
from django.contrib.sessions.middleware import SessionMiddleware
from django.core.exceptions import BadRequest
from django.http import HttpRequest, HttpResponse
from django.http.response import HttpResponseBase
from django.middleware.clickjacking import XFrameOptionsMiddleware
from django.middleware.common import CommonMiddleware
from django.middleware.csrf import CsrfViewMiddleware
from django.middleware.security import SecurityMiddleware
from django_htmx.middleware import HtmxMiddleware

API_PREFIX = "/api/"
# Asked by machines that have neither token nor session.
PROBES = frozenset({"/healthz", "/readyz", "/metrics"})

# `'self'` alone: no inline script or style anywhere, so text that an agent wrote can never
# become code. htmx needs `includeIndicatorStyles: false` and `allowEval: false` under it.
CONTENT_SECURITY_POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self' data:",
        "font-src 'self'",
        "connect-src 'self'",
        "manifest-src 'self'",
        "form-action 'self'",
        "base-uri 'none'",
        "frame-ancestors 'none'",
    )
)

GetResponse = Callable[[HttpRequest], HttpResponseBase]


class PagesOnly:
    """Mixed into a middleware: it does not see requests for the API, nor do those right below it.

    Of a row of them the first hands an API request to whatever comes after the last.
    """

    get_response: Any

    def __init__(self, get_response: GetResponse) -> None:
        super().__init__(get_response)  # type: ignore[call-arg]
        below = getattr(get_response, "__wrapped__", None)  # Django wraps each, to catch exceptions
        self.past: GetResponse = below.past if isinstance(below, PagesOnly) else get_response

    def __call__(self, request: HttpRequest) -> Any:
        if request.path_info.startswith(API_PREFIX):
            return self.past(request)
        return super().__call__(request)  # type: ignore[misc]


class PageSecurity(PagesOnly, SecurityMiddleware):
    pass


class PageSessions(PagesOnly, SessionMiddleware):
    pass


class PageCommon(PagesOnly, CommonMiddleware):
    pass


class PageCsrf(PagesOnly, CsrfViewMiddleware):
    def process_view(self, request: HttpRequest, *view: Any) -> Any:
        if request.path_info.startswith(API_PREFIX):
            return None
        return super().process_view(request, *view)


class PageLogins(PagesOnly, AuthenticationMiddleware):
    pass


class PageLoginRequired(PagesOnly, LoginRequiredMiddleware):
    """Every page needs a session unless its view says otherwise: a new page cannot forget."""

    def process_view(self, request: HttpRequest, *view: Any) -> Any:
        if request.path_info.startswith(API_PREFIX) or request.path_info in PROBES:
            return None
        return super().process_view(request, *view)

    def handle_no_permission(self, request: HttpRequest, view_func: Any) -> Any:
        if "HX-Request" in request.headers:
            # Followed, the redirect would put the login page into a corner of the page.
            return HttpResponse(status=204, headers={"HX-Refresh": "true"})
        return super().handle_no_permission(request, view_func)


class PageMessages(PagesOnly, MessageMiddleware):
    pass


class PageFrames(PagesOnly, XFrameOptionsMiddleware):
    pass


class PageHtmx(PagesOnly, HtmxMiddleware):
    pass


class PageText:
    """No page is given NUL: nobody types it, and Postgres takes it in no text (case C93).

    The API's door has its own check, which names the field (ledger/jsontext.py).
    """

    def __init__(self, get_response: GetResponse) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        return self.get_response(request)

    def process_view(self, request: HttpRequest, *_view: Any) -> None:
        if request.path_info.startswith(API_PREFIX):
            return
        for given in (request.GET, request.POST):
            for name, values in given.lists():
                if "\0" in name or any("\0" in value for value in values):
                    raise BadRequest(f"the field {name!r} holds NUL")


class ContentSecurityPolicy:
    """Outermost: the policy on every page, and `nosniff` on every answer of either door."""

    def __init__(self, get_response: GetResponse) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        response = self.get_response(request)
        headers = response.headers
        headers.setdefault("X-Content-Type-Options", "nosniff")
        if not request.path_info.startswith(API_PREFIX):
            headers.setdefault("Content-Security-Policy", CONTENT_SECURITY_POLICY)
            headers.setdefault("Permissions-Policy", "camera=(), microphone=(), geolocation=()")
        return response
