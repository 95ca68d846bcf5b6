"""The console has one address, said in one way: a session of `localhost` is none of 127.0.0.1."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from django.test import Client
from django.urls import reverse

from saga_console.home import BASE_DIR
from saga_console.up import Plan, host_of
from tests.stage import PASSWORD, Stage, a_stage

__all__ = ["a_stage"]
SAID_IN = ("README.md", "Makefile", "docs", "deploy", "saga_console", "ledger", "approvals")


@pytest.mark.parametrize(
    ("host", "address"),
    [
        ("127.0.0.1", "http://127.0.0.1:8400"),
        ("0.0.0.0", "http://127.0.0.1:8400"),
        ("localhost", "http://127.0.0.1:8400"),
        ("::", "http://[::1]:8400"),
        ("::1", "http://[::1]:8400"),
        ("console.example", "http://console.example:8400"),
    ],
)
def test_what_up_prints_is_where_a_browser_gets(host: str, address: str) -> None:
    assert Plan(host_of(host), 8400, 1).address == address


def texts() -> list[Path]:
    found = []
    for name in SAID_IN:
        place = BASE_DIR / name
        found += [place] if place.is_file() else [one for one in place.rglob("*") if one.is_file()]
    return [one for one in found if one.suffix in {"", ".md", ".py", ".html", ".toml", ".example"}]


def test_no_text_and_no_output_says_localhost_for_the_console() -> None:
    found = texts()
    assert len(found) > 200
    said = [str(path) for path in found if re.search(r"//localhost\b", path.read_text("utf-8"))]
    assert said == []


@pytest.mark.django_db
@pytest.mark.parametrize("host", ["127.0.0.1:8400", "[::1]:8400", "localhost:8400"])
def test_a_sign_in_works_at_every_address_that_is_printed_or_typed(stage: Stage, host: str) -> None:
    """Host and CSRF checks on, as a browser meets them."""
    _ = stage.approver
    client = Client(enforce_csrf_checks=True)
    form = client.get(reverse("login"), headers={"host": host})
    token = re.search(r'name="csrfmiddlewaretoken" value="([^"]+)"', form.content.decode())[1]
    sent = {"username": "olivia", "password": PASSWORD, "csrfmiddlewaretoken": token}
    headers = {"host": host, "origin": f"http://{host}"}
    answer = client.post(reverse("login"), sent, headers=headers)
    assert answer.status_code == 302
    foreign = client.post(
        reverse("login"), sent, headers=headers | {"origin": "http://evil.example"}
    )
    assert foreign.status_code == 403
