"""Traces of sagas, and agentack, which judges them from outside."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest

from approvals.models import Approval
from approvals.services import deciding
from ledger.bearer import Bearer
from ledger.models import Agent
from ledger.queries import trace
from ledger.services import tokens
from ledger.services.closing import complete
from ledger.services.proposals import Proposal
from tests.apicast import Caller
from tests.approvalcast import person
from tests.shop import Shop, customer, states, work, work_saga

Events = list[dict[str, Any]]
PASS, FAIL, INVALID, INCOMPLETE = 0, 1, 2, 3
# What agentack shall know of the shop: refunds need a person, and an approval is used once.
POLICY = """
version = 1
[approval]
require_for = ["payments.refund:forward"]
max_age_seconds = 60
"""


@pytest.fixture
def ana() -> Bearer:
    return person("ana", "approvers")


@pytest.fixture
def check(tmp_path: Path) -> Callable[[Any], tuple[int, str]]:
    """`agentack check` on a trace (bytes or events): its exit code and what it printed."""
    policy = tmp_path / "agentack.toml"
    policy.write_text(POLICY)

    def judge(told: bytes | Events) -> tuple[int, str]:
        file = tmp_path / f"{uuid4()}.jsonl"
        raw = told if isinstance(told, bytes) else "\n".join(map(json.dumps, told)).encode()
        file.write_bytes(raw)
        command = [sys.executable, "-m", "agentack", "check", str(file), "--policy", str(policy)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        return done.returncode, done.stdout + done.stderr

    return judge


def read(saga: UUID, shop: Shop) -> bytes:
    """The trace as the saga's own agent gets it."""
    agent = Agent.objects.get(pk=shop.bearer.agent_id)
    answer = Caller(tokens.issue_agent_token(agent.name)).get(f"sagas/{saga}/trace.jsonl")
    assert answer.status_code == 200
    assert answer.headers["Content-Type"] == "application/jsonl"
    sent: bytes = answer.getvalue()
    return sent


def events(saga: UUID) -> Events:
    return [json.loads(line) for line in trace.lines(saga)]


def told(saga: UUID) -> list[tuple[str, str]]:
    """(type, action) of each event, in order."""
    return [(event["type"], event.get("action_id", "")) for event in events(saga)]


def refund(shop: Shop, step_id: str = "refund", amount: int = 100, **more: Any) -> Proposal:
    args = {"charge": shop.charge(), "amount": amount}
    return Proposal(step_id, "payments.refund", args, **more)


def request_of(saga: UUID, step_id: str = "refund") -> Approval:
    return Approval.objects.filter(saga_id=saga, step__step_id=step_id).latest("id")


def answer(
    who: Bearer, saga: UUID, verb: Any = deciding.approve, step_id: str = "refund", **more: Any
) -> None:
    request = request_of(saga, step_id)
    verb(who, request.pk, args_digest=request.args_digest, **more)


def approved_refund(shop: Shop, ana: Bearer) -> UUID:
    """A completed saga: a customer, then a refund that a person allowed."""
    saga = shop.open(customer("customer"), refund(shop))
    answer(ana, saga)
    work(lambda: states(saga)["refund"] == "committed")
    complete(saga, bearer=shop.bearer)
    work_saga(saga, "completed")
    return saga
