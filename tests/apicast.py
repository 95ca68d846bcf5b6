"""The cast of the API's tests: agents, operators, and tools that reach a real socket."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pytest
from django.db import connection
from django.test import Client

from ledger import wake
from ledger.models import Shift
from ledger.models.fields import ClockTimestamp
from ledger.services import tokens
from ledger.shift import ShiftLoop, stopping
from tests.registered import registered

# The test client adds json() to Django's response, which its type does not know.
Answer = Any
# Loaded by conftest.py after Django is set up.
URN = "urn:saga-console:problem/"
TOOL = """
[tools."{name}"]
version = "1"
tier = "{tier}"
blast_radius = "{blast}"
{more}
[tools."{name}".args]
type = "object"
required = ["id"]
additionalProperties = false
properties = {{ id = {{ type = "string" }}, amount = {{ type = "number" }} }}
[tools."{name}".execute]
method = "POST"
url = "{url}/do"
"""
UNDO = '[tools."{name}".compensate]\nmethod = "POST"\nurl = "{url}/undo"\n'


def tools_text(url: str) -> str:
    """Three tools: a harmless one, one with an effect key, one that waits for a person."""
    parts = []
    for name, tier, blast, more in (
        ("notes.add", "compensatable", "low", ""),
        ("notes.once", "compensatable", "low", 'effect_key = "once:{args.id}"'),
        ("notes.grave", "pivot", "high", ""),
    ):
        parts.append(TOOL.format(name=name, tier=tier, blast=blast, more=more, url=url))
        if tier == "compensatable":
            parts.append(UNDO.format(name=name, url=url))
    return "\n".join(parts)


@pytest.fixture
def tools(settings: Any, tmp_path: Any, unused_url: str) -> Iterator[None]:
    """The tools of `tools_text`, at an address where nobody listens yet."""
    with tools_at(settings, tmp_path, unused_url):
        yield


@contextmanager
def tools_at(settings: Any, tmp_path: Any, url: str) -> Iterator[None]:
    """The tools of `tools_text` at `url`, in the registry of this process."""
    with registered(settings, tmp_path, tools_text(url)):
        yield


@pytest.fixture
def unused_url() -> str:
    """Port 1 on loopback: refused at once, everywhere."""
    return "http://127.0.0.1:1"


@dataclass(frozen=True)
class Caller:
    """Somebody with a token, or without."""

    token: str | None

    def send(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        kind: str = "application/json",
        **headers: str,
    ) -> Answer:
        """`body` is sent as it is when bytes, as JSON otherwise. Header names with `_`."""
        raw = (
            body if isinstance(body, bytes) else b"" if body is None else json.dumps(body).encode()
        )
        extra = {name.replace("_", "-"): value for name, value in headers.items()}
        if self.token is not None:
            extra.setdefault("Authorization", f"Bearer {self.token}")
        client = Client(raise_request_exception=False)
        url = path if path.startswith("/") else f"/api/v1/{path}"
        if method in ("GET", "DELETE") and body is None:
            return client.generic(method, url, headers=extra)
        # The test client leaves the kind of an empty body out.
        return client.generic(method, url, raw, kind, headers=extra | {"Content-Type": kind})

    def get(self, path: str, **headers: str) -> Answer:
        return self.send("GET", path, **headers)

    def post(self, path: str, body: Any = None, **headers: str) -> Answer:
        return self.send("POST", path, body, **headers)

    def open(self, task_id: str = "task-1", **more: Any) -> str:
        """A new saga's id."""
        answer = self.post("sagas", {"task_id": task_id, "name": "Task", **more})
        assert answer.status_code == 201, answer.content
        return str(answer.json()["id"])

    def propose(self, saga: str, step_id: str = "s1", **more: Any) -> Answer:
        headers = {name: more.pop(name) for name in ("Prefer", "Idempotency_Key") if name in more}
        step = {"step_id": step_id, "tool": "notes.add", "args": {"id": "a"}, **more}
        return self.post(f"sagas/{saga}/steps", step, **headers)


@pytest.fixture
def nobody(db: None) -> Caller:
    return Caller(None)


@pytest.fixture
def agent(db: None) -> Caller:
    return Caller(tokens.issue_agent_token("refunder"))


@pytest.fixture
def other_agent(db: None) -> Caller:
    return Caller(tokens.issue_agent_token("stranger"))


def operator_in(group: str) -> Caller:
    person = tokens.seat_operator(f"{group}-person", group=group)
    return Caller(tokens.issue_operator_token(person))


@pytest.fixture
def viewer(db: None) -> Caller:
    return operator_in("viewers")


@pytest.fixture
def oncall(db: None) -> Caller:
    return operator_in("oncall")


@contextmanager
def a_shift(settings: Any) -> Iterator[None]:
    """A worker's shift in a thread. Needs `transactional_db`."""
    settings.SAGA_SHIFT_THREADS = 2
    shift = Shift.objects.create(lease_until=ClockTimestamp())

    def work() -> None:
        try:
            ShiftLoop(shift.pk).run()
        finally:
            connection.close()

    stopping.clear()
    worker = threading.Thread(target=work)
    worker.start()
    try:
        yield
    finally:
        stopping.set()
        worker.join(10)
        stopping.clear()


def problem_type(answer: Answer) -> str:
    """The last word of a problem document's type; asserts that it is one, and complete."""
    assert answer.headers["Content-Type"] == "application/problem+json", answer.content
    document = answer.json()
    assert document["status"] == answer.status_code
    assert document["title"]
    assert document["detail"]
    return str(document["type"]).removeprefix(URN)


@pytest.fixture(autouse=True)
def no_listener_is_left() -> Iterator[None]:
    """A listener of this process would keep the test's database from being dropped."""
    yield
    wake.close()
