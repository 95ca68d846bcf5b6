"""A real target for the engine's tests: localstripe, which dedupes nothing, behind a wire
that can be cut after the effect. What happened is always read from the target itself."""

from __future__ import annotations

import base64
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import httpx
import pytest

from ledger import outbox
from ledger.bearer import Bearer
from ledger.models import Agent, Entry, Saga, Step
from ledger.services import shifts
from ledger.services.opening import open_saga
from ledger.services.proposals import Answer, Opening, Proposal
from ledger.services.proposing import propose
from ledger.services.verifying import verify
from ledger.shift import ShiftLoop
from ledger.tools.installed import registry
from saga_console.demo.faultproxy import FaultProxy
from tests.running import free_port

AUTH = "Basic " + base64.b64encode(b"sk_test_12345:").decode()
TOOLS = (Path(__file__).parent / "data" / "shop.toml").read_text(encoding="utf-8")


@cache
def visitor() -> httpx.Client:
    """Who looks at the target past the console. One, because each reads every authority of the
    machine's trust store (26 ms)."""
    return httpx.Client(headers={"Authorization": AUTH}, timeout=30)


@dataclass
class Shop:
    """The payment server, what is there, and the agent that works on it."""

    url: str
    wire: FaultProxy
    bearer: Bearer = field(default_factory=Bearer)

    def get(self, path: str) -> Any:
        answer = visitor().get(self.url + path)
        answer.raise_for_status()
        return answer.json()

    def charge(self, amount: int = 5000) -> str:
        """A payment that is there already; its id."""
        paid = {"amount": str(amount), "currency": "eur", "source": "pm_card_visa"}
        answer = visitor().post(f"{self.url}/v1/charges", data=paid)
        answer.raise_for_status()
        return str(answer.json()["id"])

    def refunds(self, charge: str) -> list[dict[str, Any]]:
        """Every refund of a charge, as the target lists them."""
        found: list[dict[str, Any]] = self.get(f"/v1/refunds?charge={charge}&limit=100")["data"]
        return found

    def customers(self, key: str) -> list[dict[str, Any]]:
        """Every customer that was made under this downstream key; the list comes in pages."""
        found: list[dict[str, Any]] = []
        after = ""
        while True:
            page = self.get(f"/v1/customers?limit=100{after}")
            found += page["data"]
            if not page["has_more"]:
                return [one for one in found if one["metadata"].get("saga_key") == key]
            after = f"&starting_after={found[-1]['id']}"

    def is_there(self, customer: str) -> bool:
        """Whether a customer exists and is not deleted."""
        answer = visitor().get(f"{self.url}/v1/customers/{customer}")
        return answer.status_code == 200 and not answer.json().get("deleted", False)

    # -- the agent ----------------------------------------------------------------------

    def open(self, *steps: Proposal, task_id: str = "", **more: Any) -> UUID:
        """A new saga of this shop's agent."""
        opening = Opening(task_id=task_id or str(uuid4()), name="Shopping", steps=steps, **more)
        return open_saga(opening, bearer=self.bearer).saga

    def propose(self, saga: UUID, step_id: str, tool: str, **more: Any) -> Answer:
        """One more step; `args` and the other fields of Proposal by name."""
        return propose(saga, Proposal(step_id, tool, **more), bearer=self.bearer)


def customer(step_id: str, email: str = "ada@example.com") -> Proposal:
    """A step that can be undone."""
    return Proposal(step_id, "crm.customer", {"email": email})


def broken(step_id: str) -> Proposal:
    """A step that the target refuses for good."""
    return Proposal(step_id, "crm.broken", {"id": "cus_of_nobody"})


@contextmanager
def payment_server() -> Iterator[str]:
    """A new localstripe; its address."""
    port = free_port()
    command = [sys.executable, "-m", "localstripe", "--port", str(port), "--from-scratch"]
    server = subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
    )
    url = f"http://127.0.0.1:{port}"
    deadline = time.monotonic() + 30
    while True:
        try:
            visitor().get(f"{url}/v1/customers")
            break
        except httpx.HTTPError:
            assert time.monotonic() < deadline, "localstripe did not start"
            time.sleep(0.1)
    try:
        yield url
    finally:
        os.killpg(server.pid, signal.SIGTERM)
        server.wait(10)


# What `stripe` has started in this process.
_running: list[str] = []


@pytest.fixture(scope="session")
def stripe() -> Iterator[str]:
    """The address of one localstripe for the whole run; `empty_shelves` clears it."""
    with payment_server() as url:
        _running.append(url)
        yield url


@pytest.fixture(scope="module", autouse=True)
def empty_shelves() -> Iterator[None]:
    """No module finds what others left at `stripe`.

    The probe lists every customer: with nine hundred the answer is longer than the engine reads
    (1 MB), and what is in doubt stays so. Lists also get slow, with the square of what is there.
    """
    yield
    for url in _running:
        visitor().delete(f"{url}/_config/data").raise_for_status()


@pytest.fixture
def wire(stripe: str) -> Iterator[FaultProxy]:
    """What stands between the console and the target."""
    host, port = stripe.removeprefix("http://").split(":")
    proxy = FaultProxy((host, int(port)))
    proxy.start()
    yield proxy
    proxy.stop()


@pytest.fixture
def shop(
    transactional_db: None,
    stripe: str,
    wire: FaultProxy,
    settings: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Shop]:
    """The shop with its tools registered, and quick times for doubts and leases."""
    monkeypatch.setenv("SHOP_AUTH", AUTH)
    tools = tmp_path / "tools.toml"
    tools.write_text(TOOLS.replace("SHOP_URL", wire.url), encoding="utf-8")
    settings.SAGA_TOOLS = str(tools)
    settings.SAGA_SHIFT_LINGER_S = 0.05
    settings.SAGA_LEASE_S = 1
    settings.SAGA_PROBE_APART_S = 0.2
    registry.cache_clear()
    agent = Agent.objects.create(name=f"shopper-{uuid4()}")
    yield Shop(stripe, wire, Bearer(agent_id=agent.pk, agent_name=agent.name))
    registry.cache_clear()


def work(
    until: Callable[[], bool], within_s: float = 30.0, got_to: Callable[[], object] = str
) -> None:
    """Shifts and sweeps, as relay and workers do them, until something holds."""
    deadline = time.monotonic() + within_s
    while not until():
        assert time.monotonic() < deadline, f"the engine did not get there in time {got_to()}"
        ShiftLoop(shifts.ring_row()).run()
        outbox.sweep()


def work_saga(saga: UUID, state: str, within_s: float = 30.0) -> None:
    """Work until a saga is in a state."""

    def is_there() -> bool:
        return Saga.objects.get(pk=saga).state == state

    work(is_there, within_s, lambda: (states(saga), kinds(saga)))


def states(saga: UUID) -> dict[str, str]:
    """The states of a saga's steps, in their order."""
    found = Step.objects.filter(saga_id=saga).order_by("position")
    return {step.step_id: step.state for step in found}


def kinds(saga: UUID, *wanted: str) -> list[tuple[str, str]]:
    """(kind, step) of a saga's entries, in order; only the wanted kinds when given."""
    found = Entry.objects.filter(saga_id=saga).order_by("seq").values_list("kind", "step_id")
    return [(kind, step) for kind, step in found if not wanted or kind in wanted]


def assert_verifies() -> None:
    """The log is the state."""
    assert [str(fault) for fault in verify()] == []
