"""Another policy file, and real processes started under it, between a yes and its claim."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.proofcast import Agent, Console, approve, refund, wait_for_states
from tests.running import Up

RULE = """
[[rule]]
name = "{name}"
tool = "payments.refund"
verdict = "{verdict}"
"""
BEFORE = RULE.format(name="refunds", verdict="ask")
# Tightened: two people instead of one.
AFTER = RULE.format(name="refunds by two", verdict="ask") + (
    'need = [{group = "approvers", count = 2}]\n'
)


@pytest.fixture
def policy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The policy file of the processes that are started next."""
    path = tmp_path / "policy.toml"
    path.write_text(BEFORE, encoding="utf-8")
    monkeypatch.setenv("SAGA_POLICY", str(path))
    return path


@pytest.fixture
def deployed(policy: Path, tmp_path: Path, stripe: str) -> Iterator[Console]:
    """A console of its own, whose every process runs under the policy file."""
    console = Console(tmp_path / "home", stripe)
    try:
        with console.up:
            yield console
    finally:
        console.close()


@contextmanager
def restarted(console: Console) -> Iterator[None]:
    """Every process stops; then others start, of the same home, with the same tools."""
    console.up.stop()
    with pytest.MonkeyPatch.context() as patch:
        for name, value in console.env.items():
            patch.setenv(name, value)
        console.up = Up(console.home, port=console.up.port)
    with console.up:
        yield


def freeze(oncall: Agent) -> None:
    """A yes waits under it, so that no worker can use it before the policy changes."""
    body = {"scope": "tool", "value": "payments.refund", "reason": "while the policy changes"}
    oncall.client.post("freezes", json=body).raise_for_status()


def thaw(oncall: Agent) -> None:
    for freeze in oncall.client.get("freezes").json()["items"]:
        oncall.client.delete(f"freezes/{freeze['id']}").raise_for_status()


def requests_of(person: Agent, saga: str) -> list[dict[str, Any]]:
    """Every request about a saga, the newest first."""
    found = person.client.get("approvals", params={"limit": "100"}).json()["items"]
    return [one for one in found if one["saga_id"] == saga]


def assert_nothing_ran(console: Console, agent: Agent, saga: str) -> None:
    charge = agent.saga(saga)["steps"][0]["args"]["charge"]
    assert agent.kinds(saga)["attempt.started"] == 0
    assert console.refunds(charge) == []


def test_workers_that_start_under_another_policy_ask_anew(deployed: Console, policy: Path) -> None:
    """No effect under the old yes: it is superseded, and the policy of now decides."""
    agent, oncall = deployed.agent(), deployed.operator("oskar", "oncall")
    saga = refund(deployed, agent)
    freeze(oncall)
    approve(deployed.operator("olivia"), saga)
    wait_for_states(agent, [saga], "queued")
    policy.write_text(AFTER, encoding="utf-8")
    with restarted(deployed):
        thaw(oncall)
        wait_for_states(agent, [saga], "awaiting_approval")
        assert_asked_of_two(oncall, saga)
        assert_nothing_ran(deployed, agent, saga)
        deployed.assert_verifies()


def assert_asked_of_two(person: Agent, saga: str) -> None:
    new, old = requests_of(person, saga)
    assert (new["state"], old["state"]) == ("pending", "superseded")
    assert new["policy"]["rule"] == "refunds by two"
    assert new["policy"]["digest"] != old["policy"]["digest"]
    assert [(need["count"], need["have"]) for need in new["needs"]] == [(2, 0)]
    told = person.client.get(f"approvals/{new['id']}").json()
    assert told["why"] == "Since the yes, the policy changed."
