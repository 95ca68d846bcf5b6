"""Whatever happens at the door, a client gets a problem document; and the probes tell the truth."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from django.db import OperationalError, connection
from django.test import Client

from ledger.api.problems import answer_error
from ledger.errors import SagaError
from ledger.models import Step
from ledger.queries import gauges
from saga_console.api import api
from saga_console.home import BASE_DIR
from tests.apicast import Caller, problem_type

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("tools")]


@pytest.mark.parametrize(
    "path", ["/api/v1/", "/api/v1/nothing", "/api/v2/sagas", "/api/", "/api/v1/sagas/"]
)
def test_an_unknown_path_is_a_problem_document(agent: Caller, path: str) -> None:
    for method in ("GET", "POST"):
        answer = agent.send(method, path)
        assert (answer.status_code, problem_type(answer)) == (404, "not-found")


def test_a_wrong_method_is_405_and_says_which_are_right(agent: Caller) -> None:
    answer = agent.send("PUT", "sagas")
    assert (answer.status_code, problem_type(answer)) == (405, "about:blank")
    assert set(answer.headers["Allow"].split(", ")) >= {"GET", "POST"}


@pytest.mark.parametrize(
    ("accept", "status"),
    [
        ("text/html", 406),
        ("image/*", 406),
        ("*/*", 200),
        ("application/json", 200),
        ("application/*", 200),
        ("text/html, */*;q=0.1", 200),
        ("application/problem+json", 200),
    ],
)
def test_only_json_is_answered(agent: Caller, accept: str, status: int) -> None:
    answer = agent.get("sagas", Accept=accept)
    assert answer.status_code == status
    if status == 406:
        assert problem_type(answer) == "about:blank"


@pytest.mark.parametrize("host", ["console.internal", "foo_bar", "127.0.0.1, x", "10.1.2.3", ""])
def test_a_foreign_host_is_refused_before_anything_is_stored(agent: Caller, host: str) -> None:
    saga = agent.open()
    step = {"step_id": "s1", "tool": "notes.add", "args": {"id": "a"}}
    for path, body in (
        ("sagas", {"task_id": "task-2", "name": "Task", "steps": [step]}),
        (f"sagas/{saga}/steps", step),
        (f"sagas/{saga}/abort", {"reason": "wrong"}),
    ):
        answer = agent.post(path, body, Host=host)
        assert (answer.status_code, problem_type(answer)) == (400, "about:blank")
        assert "ALLOWED_HOSTS" in answer.json()["detail"]
    assert [one["id"] for one in agent.get("sagas").json()["items"]] == [saga]
    assert (agent.get(f"sagas/{saga}").json()["state"], Step.objects.count()) == ("running", 0)


def test_every_address_of_the_api_refuses_a_foreign_host(agent: Caller, oncall: Caller) -> None:
    for path in ("sagas", "tools", "openapi.json", "nothing", "/api/v2/sagas"):
        answer = agent.get(path, Host="console.internal")
        assert (answer.status_code, problem_type(answer)) == (400, "about:blank"), path
    for path in ("approvals", "freezes"):
        assert oncall.get(path, Host="console.internal").status_code == 400, path


def test_a_fault_of_our_own_is_told_without_its_insides(rf: Any, caplog: Any) -> None:
    answer = answer_error(rf.get("/api/v1/sagas"), RuntimeError("secret detail"))
    assert (answer.status_code, problem_type_of(answer)) == (500, "about:blank")
    assert b"secret" not in answer.content
    assert "secret detail" in caplog.text


def test_a_database_that_is_away_is_503_and_may_be_asked_again(rf: Any) -> None:
    answer = answer_error(rf.get("/api/v1/sagas"), OperationalError("gone"))
    assert (answer.status_code, problem_type_of(answer)) == (503, "about:blank")
    assert answer.headers["Retry-After"] == "2"


def problem_type_of(answer: Any) -> str:
    assert answer.headers["Content-Type"] == "application/problem+json"
    return str(json.loads(answer.content)["type"])


def test_the_description_covers_every_operation_and_needs_no_token(nobody: Caller) -> None:
    answer = nobody.get("openapi.json")
    assert answer.status_code == 200
    document = answer.json()
    assert {"/api/v1/sagas", "/api/v1/sagas/{saga}/steps", "/api/v1/freezes/{freeze}"} <= set(
        document["paths"]
    )
    references = set(re.findall(r'"#/components/schemas/(\w+)"', answer.content.decode()))
    assert references <= set(document["components"]["schemas"])
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            assert operation["summary"], (method, path)
            assert operation["description"], (method, path)
            assert "401" in operation["responses"], (method, path)
            if method == "post":
                assert "requestBody" in operation, (method, path)


def test_every_problem_type_is_in_the_manual() -> None:
    manual = (BASE_DIR / "docs/agents.md").read_text(encoding="utf-8")
    headings = set(re.findall(r"^### ([a-z-]+)$", manual, re.MULTILINE))
    assert headings == {error.type for error in SagaError.__subclasses__()}


def test_alive_and_ready_are_two_things(redis_client: Any) -> None:
    assert Client().get("/healthz").json() == {"status": "ok"}
    answer = Client().get("/readyz")
    assert (answer.status_code, answer.json()) == (200, {"status": "ok"})


def test_ready_names_what_is_missing(settings: Any, redis_client: Any) -> None:
    settings.REDIS_URL = "redis://127.0.0.1:1/0"
    answer = Client().get("/readyz")
    assert answer.status_code == 503
    assert set(answer.json()["faults"]) == {"redis"}


def test_metrics_tell_of_requests_and_of_the_outbox(agent: Caller) -> None:
    agent.propose(agent.open())
    text = Client().get("/metrics").content.decode()
    assert (
        'saga_request_seconds_count{method="POST",route="sagas/<saga>/steps",status="202"}' in text
    )
    assert re.search(r"^saga_outbox_waiting 1\.0$", text, re.MULTILINE)
    assert 'saga_steps{state="unknown"} 0.0' in text
    assert "saga_shifts_live 0.0" in text
    assert re.search(r'^saga_proposals_total\{kind="accepted"\} \d', text, re.MULTILINE)


@pytest.mark.parametrize("path", ["/healthz", "/readyz", "/metrics"])
def test_a_probe_is_only_read(path: str) -> None:
    assert Client().post(path).status_code == 405


def test_no_gauge_scans_a_table_that_grows() -> None:
    with connection.cursor() as cursor:
        cursor.execute("SET LOCAL enable_seqscan = off")
        cursor.execute("EXPLAIN " + gauges._STEPS, [1])
        assert "ledger_step_attention" in str(cursor.fetchall())
        cursor.execute("EXPLAIN " + gauges._OUTBOX, [1])
        assert "ledger_outbox_due" in str(cursor.fetchall())
        cursor.execute("EXPLAIN " + gauges._IGNORED, [1])
        assert "ledger_shift_ignored" in str(cursor.fetchall())


def test_an_operation_that_leaves_its_answer_to_the_framework_is_refused(rf: Any) -> None:
    """The response that it would fill in is one for all requests."""
    shared = api.create_temporal_response(rf.get("/api/v1/thing"))
    assert shared is api.create_temporal_response(rf.get("/api/v1/other"))
    with pytest.raises(TypeError, match="a response of its own"):
        shared.status_code = 200
    with pytest.raises(TypeError, match="a response of its own"):
        shared.content = b"of one caller"
