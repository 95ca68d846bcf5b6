"""A whole console as processes, with a real payment server behind it, to be treated badly."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import psutil
import psycopg
import redis

from saga_console.home import Home
from tests.furnished import furnished
from tests.running import Up, manage
from tests.shop import AUTH, TOOLS, visitor

# Quick times, so that what is recovered is recovered within a test's patience.
QUICK = {"SAGA_LEASE_S": "2", "SAGA_PROBE_APART_S": "0.5", "SAGA_SHIFT_LEASE_S": "2"}


@dataclass
class Console:
    """One running console; `effects` are read from the target and nowhere else."""

    up: Up
    home: Home
    target: str

    @property
    def api(self) -> str:
        return f"http://127.0.0.1:{self.up.port}/api/v1"

    def client(self, agent: str) -> httpx.Client:
        """A caller with a new token of an agent."""
        made = manage(self.home.root, "agent_token", agent)
        assert made.returncode == 0, made.stderr
        headers = {"Authorization": f"Bearer {made.stdout.strip()}"}
        return httpx.Client(base_url=self.api, headers=headers, timeout=60)

    def children(self, *names: str) -> list[psutil.Process]:
        """The running relays and workers of this console, by the words they were started with."""
        found = psutil.Process(self.up.process.pid).children(recursive=True)
        return [child for child in found if _role(child) in names]

    def kill(self, *names: str) -> int:
        """SIGKILL; how many it was."""
        victims = self.children(*names)
        for victim in victims:
            victim.kill()
        return len(victims)

    def flush_redis(self) -> None:
        with redis.Redis.from_url(self.home.redis_url) as client:
            client.flushall()

    def sql(self, statement: str, *params: Any, user: str = "saga") -> list[tuple[Any, ...]]:
        """Rows of a statement, as the application's role or another one."""
        with psycopg.connect(self.home.database_url_as(user), autocommit=True) as connection:
            cursor = connection.execute(statement, params)
            return cursor.fetchall() if cursor.description else []

    def effects(self) -> Counter[str]:
        """How many customers the target has for each key of ours."""
        answer = visitor().get(f"{self.target}/v1/customers?limit=100000")
        mine = [found["metadata"].get("saga_key") for found in answer.json()["data"]]
        return Counter(key for key in mine if key)

    def verify(self) -> tuple[int, str]:
        done = manage(self.home.root, "verify_ledger")
        return done.returncode, done.stdout


def _role(process: psutil.Process) -> str:
    try:
        line = " ".join(process.cmdline())
    except psutil.Error:
        return ""
    if line.startswith("rq:worker") or "manage.py worker" in line:
        return "worker"
    return "relay" if "manage.py relay" in line else ""


@contextmanager
def console(folder: Path, target: str, **more: str) -> Iterator[Console]:
    """A console in a home of its own, with the shop's tools."""
    home = folder / "home"
    tools = folder / "tools.toml"
    tools.write_text(TOOLS.replace("SHOP_URL", target), encoding="utf-8")
    wanted = QUICK | {"SAGA_TOOLS": str(tools), "SHOP_AUTH": AUTH} | more
    before = {name: os.environ.get(name) for name in wanted}
    os.environ.update(wanted)
    try:
        with Up(furnished(home)) as up:
            yield Console(up, Home(home), target)
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
