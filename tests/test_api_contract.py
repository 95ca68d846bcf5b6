"""The wire contract, held against real sagas: calls, statuses, fields, problems, times and ids.

The lists are written out here and derived from nothing: outside clients are written against
them, so a change of the code must not change them along.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import pytest
from django.test import Client

from ledger.api.problems import TYPE_PREFIX
from ledger.errors import SagaError
from ledger.models import Agent
from ledger.services import tokens
from tests.apicast import Caller, a_shift, operator_in, problem_type
from tests.shop import Shop

pytestmark = pytest.mark.django_db(transaction=True)

SAGA = "id task_id name agent state metadata steps residue created_at updated_at url"
STEP = """id saga_id step_id position tool tool_version args args_digest idempotency_key tier state
    result error reason approval effect_of attempts created_at finished_at"""
APPROVAL = """id state saga_id step_id tool tool_version args args_digest policy needs decisions
    expires_at can_decide why_not url created_at decided_at"""
ENTRY = "seq kind step_id at actor payload prev_hash hash"
TOOL = "name title version tier blast_radius args_schema"
FREEZE = "id scope value reason created_by created_at expires_at lifted_at lifted_by"
CALLS = """
    GET /sagas                      POST /sagas
    GET /sagas/{}                   POST /sagas/{}/steps
    POST /sagas/{}/complete         POST /sagas/{}/abort
    GET /sagas/{}/ledger            GET /sagas/{}/trace.jsonl
    GET /steps/{}                   POST /steps/{}/resolve        POST /steps/{}/retry
    GET /steps/{}/actions           POST /steps/{}/confirm        POST /steps/{}/skip
    POST /steps/{}/acknowledge      GET /tools
    GET /approvals                  GET /approvals/{}
    POST /approvals/{}/approve      POST /approvals/{}/reject     POST /approvals/{}/request-change
    POST /approvals/{}/reopen         POST /approvals/bulk
    GET /freezes                    POST /freezes                 DELETE /freezes/{}
"""
PROBLEMS = """invalid-json invalid-args unknown-tool missing-step-id step-in-flight step-mismatch
    task-mismatch effect-claimed previously-rejected saga-ended frozen forbidden unauthorized
    already-decided approval-expired stale-digest not-found too-large rate-limited"""


def assert_fields(document: Any, names: str, *more: str) -> Any:
    """The document has exactly these fields; returned, to be looked at further."""
    assert sorted(document) == sorted([*names.split(), *more])
    return document


def one_of(answer: Any, names: str) -> Any:
    """The first of a list's items, each of which has exactly these fields."""
    assert answer.status_code == 200, answer.content
    envelope = assert_fields(answer.json(), "items next_cursor")
    assert envelope["next_cursor"] is None or isinstance(envelope["next_cursor"], str)
    for item in envelope["items"]:
        assert_fields(item, names)
    return envelope["items"][0]


def assert_times_and_ids(document: Any) -> None:
    """RFC 3339 in UTC, and UUIDv7, wherever a name says that it is one."""
    for name, value in document.items():
        if value is not None and name.endswith("_at"):
            assert value.endswith("Z"), (name, value)
            assert datetime.fromisoformat(value).tzinfo == UTC
        if name in ("id", "saga_id"):
            assert UUID(value).version == 7, (name, value)


@pytest.fixture
def shopper(shop: Shop) -> Caller:
    """The shop's agent, at the API."""
    return Caller(tokens.issue_agent_token(Agent.objects.get(pk=shop.bearer.agent_id).name))


@pytest.fixture
def worker(shop: Shop, settings: Any) -> Iterator[None]:
    """A worker's shift that stays for the whole test."""
    settings.SAGA_SHIFT_LINGER_S = 60
    with a_shift(settings):
        yield


@pytest.fixture
def approver(db: None) -> Caller:
    return operator_in("approvers")


def refund(shop: Shop) -> dict[str, Any]:
    args = {"charge": shop.charge(), "amount": 100}
    return {"step_id": "refund", "tool": "payments.refund", "args": args}


CUSTOMER = {"step_id": "customer", "tool": "crm.customer", "args": {"email": "ada@example.com"}}
BROKEN = {"step_id": "broken", "tool": "crm.broken", "args": {"id": "cus_of_nobody"}}


def test_the_calls_are_those_of_the_contract(nobody: Caller) -> None:
    """Ours are `GET /approvals/{id}` (one request with all that a person should read), `reopen`,
    `POST /approvals/bulk` (one answer to several), and what an operator may do about a step
    besides `resolve` and `retry`."""
    paths = nobody.get("openapi.json").json()["paths"]
    served = {
        f"{method.upper()} {re.sub(r'{[^}]*}', '{}', path.removeprefix('/api/v1'))}"
        for path, operations in paths.items()
        for method in operations
    }
    assert served == set(re.findall(r"(?:GET|POST|DELETE) \S+", CALLS))


def test_the_problems_are_those_of_the_contract(nobody: Caller) -> None:
    assert sorted(error.type for error in SagaError.__subclasses__()) == sorted(PROBLEMS.split())
    assert TYPE_PREFIX.endswith("/")
    answer = nobody.get("sagas")
    assert (answer.status_code, problem_type(answer)) == (401, "unauthorized")
    assert {"type", "title", "status", "detail"} <= set(answer.json())


def test_probes_need_no_token(redis_client: Any, db: None) -> None:
    for path in ("/healthz", "/readyz", "/metrics", "/api/v1/openapi.json"):
        assert Client().get(path).status_code == 200, path


def test_opening_a_saga_and_proposing_have_the_statuses_of_the_contract(shopper: Caller) -> None:
    opening = {"task_id": "t", "name": "Cancel order 7", "metadata": {"env": "prod"}}
    opened = shopper.post("sagas", opening)
    assert opened.status_code == 201
    saga = assert_fields(opened.json(), SAGA)
    again = shopper.post("sagas", opening)
    assert (again.status_code, again.json()) == (200, saga)
    other = shopper.post("sagas", opening | {"name": "Cancel order 8"})
    assert (other.status_code, problem_type(other)) == (422, "task-mismatch")
    steps = f"sagas/{saga['id']}/steps"
    nameless = shopper.post(steps, {name: CUSTOMER[name] for name in ("tool", "args")})
    assert (nameless.status_code, problem_type(nameless)) == (400, "missing-step-id")
    accepted = shopper.post(steps, CUSTOMER)
    assert accepted.status_code == 202
    assert assert_fields(accepted.json(), STEP)["state"] == "queued"


@pytest.mark.usefixtures("worker")
def test_a_saga_forward_has_the_fields_and_statuses_of_the_contract(
    shop: Shop, shopper: Caller, approver: Caller
) -> None:
    saga = shopper.open("t")
    done = shopper.post(f"sagas/{saga}/steps", CUSTOMER, Prefer="wait=20")
    assert done.status_code == 200, done.content
    assert assert_fields(done.json(), STEP)["state"] == "committed"
    asked = shopper.post(f"sagas/{saga}/steps", refund(shop))
    assert asked.status_code == 202
    step = assert_fields(asked.json(), STEP)
    assert assert_fields(step["approval"], "id state url")["state"] == "pending"
    approve(approver, shopper, step)
    ended = shopper.get(f"steps/{step['id']}", Prefer="wait=20")
    assert assert_fields(ended.json(), STEP)["state"] == "committed"
    whole = shopper.post(f"sagas/{saga}/complete")
    assert whole.status_code == 200
    assert assert_fields(whole.json(), SAGA)["state"] == "completed"
    assert shopper.get(f"sagas/{saga}").json() == whole.json()
    assert one_of(shopper.get("sagas?task_id=t&state=completed"), SAGA) == whole.json()
    for document in (whole.json(), *whole.json()["steps"]):
        assert_times_and_ids(document)
    entry = one_of(shopper.get(f"sagas/{saga}/ledger?after=1"), ENTRY)
    assert (entry["seq"], entry["kind"]) == (2, "step.proposed")
    assert shopper.get(f"sagas/{saga}/trace.jsonl").status_code == 200


def approve(approver: Caller, agent: Caller, step: Any) -> None:
    """Look at the request for this step, and say yes to it, once and again."""
    path = f"approvals/{step['approval']['id']}"
    request = one_of(approver.get("approvals?state=pending"), APPROVAL)
    assert (request["id"], request["step_id"]) == (step["approval"]["id"], step["step_id"])
    assert request["args_digest"] == step["args_digest"]
    assert_fields(request["policy"], "rule digest")
    assert_times_and_ids(request)
    yes = {"args_digest": request["args_digest"], "reason": "agreed"}
    for who, body, status, kind in (
        (agent, yes, 403, "forbidden"),
        (approver, yes | {"args_digest": "0" * 64}, 409, "stale-digest"),
    ):
        refused = who.post(f"{path}/approve", body)
        assert (refused.status_code, problem_type(refused)) == (status, kind)
    assert agent.get("approvals").status_code == 403
    first, second = approver.post(f"{path}/approve", yes), approver.post(f"{path}/approve", yes)
    for answer, replayed in ((first, False), (second, True)):
        assert answer.status_code == 200
        decided = assert_fields(answer.json(), APPROVAL, "replayed")
        assert (decided["state"], decided["replayed"]) == ("approved", replayed)
    changed = approver.post(f"{path}/request-change", yes)
    assert (changed.status_code, problem_type(changed)) == (409, "already-decided")


@pytest.mark.usefixtures("worker")
def test_a_saga_backward_has_the_fields_and_statuses_of_the_contract(
    shop: Shop, shopper: Caller, approver: Caller
) -> None:
    body = {"task_id": "t", "name": "n", "steps": [CUSTOMER, BROKEN]}
    opened = shopper.post("sagas", body, Prefer="wait=20")
    assert opened.status_code == 201
    refused = opened.json()["steps"][1]
    assert assert_fields(refused, STEP)["state"] == "failed"
    assert_fields(refused["error"], "code detail")
    late = shopper.post(f"sagas/{refused['saga_id']}/steps", refund(shop))
    assert (late.status_code, problem_type(late)) == (409, "saga-ended")

    aborted = shopper.open("t2")
    held = shopper.post(f"sagas/{aborted}/steps", refund(shop)).json()
    no = {"args_digest": held["args_digest"], "reason": "wrong customer"}
    answer = approver.post(f"approvals/{held['approval']['id']}/reject", no)
    assert assert_fields(answer.json(), APPROVAL, "replayed")["state"] == "rejected"
    assert shopper.get(f"steps/{held['id']}").json()["state"] == "rejected"
    turned = shopper.post(f"sagas/{shopper.open('t3')}/abort", {"reason": "a mistake"})
    assert turned.status_code == 200
    assert assert_fields(turned.json(), SAGA)["state"] == "compensated"


def test_operators_calls_have_the_fields_and_statuses_of_the_contract(
    shop: Shop, shopper: Caller, oncall: Caller, viewer: Caller
) -> None:
    assert_fields(one_of(shopper.get("tools"), TOOL), TOOL)
    step = shopper.post(f"sagas/{shopper.open()}/steps", CUSTOMER).json()["id"]
    stop = {"scope": "tool", "value": "crm.customer", "reason": "on fire"}
    answers = {"answer": "happened", "reason": "seen"}
    for path, body, status in (
        ("freezes", stop, 201),
        (f"steps/{step}/resolve", answers, 409),
        (f"steps/{step}/retry", {"reason": "please"}, 409),
    ):
        for caller in (shopper, viewer):
            refused = caller.post(path, body)
            assert (refused.status_code, problem_type(refused)) == (403, "forbidden"), path
        assert oncall.post(path, body).status_code == status, path
    freeze = one_of(oncall.get("freezes"), FREEZE)
    assert_times_and_ids(freeze)
    assert viewer.get("freezes").status_code == 403
    assert oncall.send("DELETE", f"freezes/{freeze['id']}").status_code == 204
