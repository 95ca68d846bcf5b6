"""The stage of the process-level proofs: a whole console in a home of its own, the payment
server behind a wire that can be slow, and eyes on both from outside."""

from __future__ import annotations

import os
import signal
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx
import psycopg
import pytest
import redis
from psycopg.rows import dict_row

from saga_console.home import Home
from tests.furnished import furnished
from tests.running import Up, eventually, manage
from tests.shop import AUTH, visitor
from tests.shop import TOOLS as SHOP_TOOLS
from tests.slowwire import Wire

# Quick times: a lease is the tool's timeout and five seconds more, whatever is set here.
QUICK = {
    "SAGA_LEASE_S": "2",
    "SAGA_PROBE_APART_S": "0.2",
    "SAGA_SHIFT_LEASE_S": "2",
    "SAGA_RING_GRACE_S": "1",
    "SAGA_SHIFT_LINGER_S": "0.3",
}
PROOF_TOOLS = SHOP_TOOLS + (Path(__file__).parent / "data" / "proof.toml").read_text(
    encoding="utf-8"
)


@dataclass
class Agent:
    """One agent, over plain REST."""

    url: str
    token: str
    client: httpx.Client = field(init=False)

    def __post_init__(self) -> None:
        limits = httpx.Limits(max_connections=64)
        self.client = httpx.Client(
            base_url=f"{self.url}/api/v1/",
            headers={"Authorization": f"Bearer {self.token}"},
            timeout=30,
            limits=limits,
        )

    def open(self, *steps: dict[str, Any], task_id: str = "") -> str:
        body = {"task_id": task_id or str(uuid4()), "name": "Proof", "steps": list(steps)}
        answer = self.client.post("sagas", json=body)
        assert answer.status_code == 201, answer.text
        return str(answer.json()["id"])

    def saga(self, saga: str) -> dict[str, Any]:
        return dict(self.client.get(f"sagas/{saga}").json())

    def states(self, saga: str) -> list[str]:
        return [step["state"] for step in self.saga(saga)["steps"]]

    def propose(self, saga: str, step: dict[str, Any]) -> httpx.Response:
        return self.client.post(f"sagas/{saga}/steps", json=step)

    def entries(self, saga: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = []
        while True:
            after = found[-1]["seq"] if found else 0
            page = self.client.get(f"sagas/{saga}/ledger", params={"after": after}).json()
            if not page["items"]:
                return found
            found += page["items"]

    def kinds(self, saga: str) -> Counter[str]:
        return Counter(entry["kind"] for entry in self.entries(saga))


def step(step_id: str, email: str, tool: str = "proof.customer") -> dict[str, Any]:
    return {"step_id": step_id, "tool": tool, "args": {"email": email}}


def address() -> str:
    """An e-mail address that no other step has."""
    return f"{uuid4().hex}@example.com"


class Console:
    """A whole console as a user runs it, and what an outsider can do to it."""

    def __init__(self, home: Path, stripe: str, **env: str) -> None:
        self.home = home
        self.stripe = stripe
        self.wire = Wire(stripe)
        tools = home.parent / f"{home.name}-tools.toml"
        tools.write_text(PROOF_TOOLS.replace("SHOP_URL", self.wire.url), encoding="utf-8")
        self.env = QUICK | {"SAGA_TOOLS": str(tools), "SHOP_AUTH": AUTH} | env
        if "DATABASE_URL" not in env:
            furnished(home)
        self.up = Up(home, **self.env)
        self.url = f"http://127.0.0.1:{self.up.port}"

    # -- its users ------------------------------------------------------------------------

    def manage(self, *words: str) -> Any:
        return manage(self.home, *words, **self.env)

    def agent(self, name: str = "prover") -> Agent:
        made = self.manage("agent_token", name)
        assert made.returncode == 0, made.stderr
        return Agent(self.url, made.stdout.strip())

    def operator(self, name: str, group: str = "approvers") -> Agent:
        """A person with a token, who talks REST as agents do."""
        made = self.manage("operator", name, "--group", group)
        assert made.returncode == 0, made.stderr
        return Agent(self.url, made.stdout.strip())

    def anchor(self) -> None:
        """What the relay does once a minute."""
        code = "from ledger.services.checkpoints import anchor; print('anchored', anchor())"
        done = self.manage("shell", "-c", code)
        assert "anchored" in done.stdout, done.stderr

    def database(self, role: str = "saga") -> psycopg.Connection[dict[str, Any]]:
        """The application's own role, or `postgres`, who may do everything."""
        url = self.env.get("DATABASE_URL") or Home(self.home).database_url_as(role)
        return psycopg.connect(url, autocommit=True, row_factory=dict_row)

    def redis(self) -> redis.Redis:
        return redis.Redis.from_url(Home(self.home).redis_url)

    def assert_verifies(self) -> None:
        done = self.manage("verify_ledger")
        assert done.returncode == 0, done.stdout + done.stderr

    def shifts_at_work(self) -> int:
        """Shifts that are rung for or alive."""
        with self.database() as saga:
            found: Any = saga.execute(
                "SELECT count(*) AS n FROM ledger_shift "
                "WHERE ended_at IS NULL AND lease_until > clock_timestamp()"
            ).fetchone()
        return int(found["n"])

    def shifts_by_worker(self) -> dict[int, int]:
        """How many shifts each worker's process has begun."""
        with self.database() as saga:
            rows = saga.execute(
                "SELECT split_part(worker, ':', 2)::int AS pid, count(*) AS shifts "
                "FROM ledger_shift WHERE started_at IS NOT NULL GROUP BY 1"
            ).fetchall()
        return {row["pid"]: row["shifts"] for row in rows}

    # -- the target's own truth -----------------------------------------------------------

    def customers(self, email: str | None = None) -> list[dict[str, Any]]:
        """Every customer at the payment server, or those of one address."""
        query = {"limit": "100000"} | ({"email": email} if email else {})
        answer = visitor().get(f"{self.stripe}/v1/customers", params=query)
        answer.raise_for_status()
        found: list[dict[str, Any]] = answer.json()["data"]
        return found

    def refunds(self, charge: str) -> list[dict[str, Any]]:
        """Every refund of a payment."""
        query = {"charge": charge, "limit": "100"}
        answer = visitor().get(f"{self.stripe}/v1/refunds", params=query)
        answer.raise_for_status()
        found: list[dict[str, Any]] = answer.json()["data"]
        return found

    # -- its processes --------------------------------------------------------------------

    def children(self, *kinds: str) -> dict[str, int]:
        """pid of each child of the supervisor, by name: `web`, `relay`, `worker-1`, …"""
        path = Path(f"/proc/{self.up.process.pid}/task/{self.up.process.pid}/children")
        found = {}
        for pid in map(int, path.read_text(encoding="ascii").split()):
            with suppress(OSError):
                env = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
                mine = [word for word in env if word.startswith(b"SAGA_APPLICATION_NAME=saga-")]
                name = mine[0].partition(b"=saga-")[2].decode() if mine else ""
                if name.startswith(kinds or ("web", "relay", "worker")):
                    found[name] = pid
        return found

    def kill(self, *kinds: str) -> dict[str, int]:
        """kill -9 of these children, all at once; who they were."""
        found = self.children(*kinds)
        for pid in found.values():
            os.kill(pid, signal.SIGKILL)
        return found

    def kill_web(self) -> None:
        """kill -9 of the web server and of the process that it forked; others start it again."""
        listed = f"/proc/{self.up.process.pid}/task/{self.up.process.pid}/children"
        for pid in map(int, Path(listed).read_text(encoding="ascii").split()):
            # Its title overwrites the environment by which the others are known.
            if b"granian" in Path(f"/proc/{pid}/cmdline").read_bytes():
                os.killpg(pid, signal.SIGKILL)
                return
        raise AssertionError("no web process")

    @contextmanager
    def stopped_workers(self) -> Iterator[None]:
        """Nobody hears the bell meanwhile."""
        pids = list(self.children("worker").values())
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)
        try:
            yield
        finally:
            for pid in pids:
                os.kill(pid, signal.SIGCONT)

    def close(self) -> None:
        self.up.stop()
        self.wire.close()


@pytest.fixture(scope="session")
def console(stripe: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Console]:
    """One running console for every proof."""
    running = Console(tmp_path_factory.mktemp("proof") / "home", stripe)
    try:
        with running.up:
            yield running
    finally:
        running.close()


@pytest.fixture(scope="session")
def prover(console: Console) -> Agent:
    """The agent of the proofs."""
    return console.agent()


def wait_for_states(agent: Agent, sagas: list[str], *states: str, within_s: float = 60.0) -> None:
    """Until every step of these sagas is in one of the states."""

    def are_there() -> bool:
        return all(set(agent.states(saga)) <= set(states) for saga in sagas)

    eventually(are_there, f"every step {' or '.join(states)}", within_s)


def refund(console: Console, prover: Agent, *, task_id: str = "") -> str:
    """A saga that refunds a new payment; the default policy holds it for an approver."""
    card = {"amount": "5000", "currency": "eur", "source": "pm_card_visa"}
    paid = visitor().post(f"{console.stripe}/v1/charges", data=card).json()["id"]
    args = {"charge": paid, "amount": 100}
    step = {"step_id": "refund", "tool": "payments.refund", "args": args}
    return prover.open(step, task_id=task_id)


def approve(person: Agent, saga: str) -> None:
    """A person says yes to what waits in a saga."""
    waiting = person.client.get("approvals", params={"state": "pending"}).json()["items"]
    (request,) = [one for one in waiting if one["saga_id"] == saga]
    yes = {"reason": "seen", "args_digest": request["args_digest"]}
    person.client.post(f"approvals/{request['id']}/approve", json=yes).raise_for_status()
