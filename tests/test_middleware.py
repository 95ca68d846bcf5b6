"""Two doors: what a page gets, and what an agent's request is spared."""

from __future__ import annotations

from http.cookies import SimpleCookie

import pytest
from django.contrib.auth.decorators import login_not_required
from django.http import HttpRequest, HttpResponse
from django.middleware.csrf import get_token
from django.test import Client
from django.urls import path

from saga_console.middleware import CONTENT_SECURITY_POLICY


@login_not_required
def page(request: HttpRequest) -> HttpResponse:
    get_token(request)
    return HttpResponse(f"{request.user.is_authenticated} {bool(request.htmx)}")  # type: ignore[attr-defined]


def api(request: HttpRequest) -> HttpResponse:
    seen = [name for name in ("session", "user", "htmx", "_messages") if hasattr(request, name)]
    return HttpResponse(",".join(seen))


def unmarked(request: HttpRequest) -> HttpResponse:
    return HttpResponse("for people with a session")


urlpatterns = [
    path("page", page),
    path("unmarked", unmarked),
    path("login/", page, name="login"),
    path("api/v1/thing", api),
]

pytestmark = [pytest.mark.urls(__name__), pytest.mark.django_db]


@pytest.fixture
def strict() -> Client:
    return Client(enforce_csrf_checks=True)


def test_a_page_has_session_login_and_a_strict_policy(strict: Client) -> None:
    answer = strict.get("/page", headers={"HX-Request": "true"})
    assert answer.content == b"False True"
    assert answer["Content-Security-Policy"] == CONTENT_SECURITY_POLICY
    assert answer["X-Frame-Options"] == "DENY"
    assert answer["X-Content-Type-Options"] == "nosniff"
    assert answer["Referrer-Policy"] == "same-origin"
    cookies: SimpleCookie = answer.cookies
    assert cookies["csrftoken"]["httponly"]
    assert cookies["csrftoken"]["samesite"] == "Strict"


def test_a_view_that_says_nothing_needs_a_session(strict: Client) -> None:
    answer = strict.get("/unmarked")
    assert answer.status_code == 302
    assert answer["Location"] == "/login/?next=/unmarked"


def test_a_poll_whose_session_has_ended_reloads_its_page(strict: Client) -> None:
    answer = strict.get("/unmarked", headers={"HX-Request": "true"})
    assert (answer.status_code, answer["HX-Refresh"]) == (204, "true")


def test_no_policy_allows_inline_code_or_other_places() -> None:
    assert "unsafe" not in CONTENT_SECURITY_POLICY
    assert "http" not in CONTENT_SECURITY_POLICY


def test_a_page_refuses_a_post_without_its_token(strict: Client) -> None:
    assert strict.post("/page").status_code == 403


def test_the_api_meets_no_session_and_no_csrf(strict: Client) -> None:
    answer = strict.post("/api/v1/thing")
    assert answer.status_code == 200
    assert answer.content == b""
    assert answer["X-Content-Type-Options"] == "nosniff"
    assert not answer.cookies
