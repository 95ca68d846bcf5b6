"""Whoever crashes, whenever: nothing lost, nothing doubled.

The reviewer's own hands: SIGKILL of every worker and relay, FLUSHALL in between, while
300 steps are submitted. No step may be missing, none may have two effects.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from pathlib import Path

import httpx
import psycopg

from tests.rough import Console, console
from tests.running import eventually

SAGAS, STEPS = 100, 3
CALLERS = 4


def saga_body(number: int) -> dict[str, object]:
    steps = [
        {
            "step_id": f"step-{position}",
            "tool": "crm.customer",
            "args": {"email": f"{number}.{position}@example.com"},
        }
        for position in range(STEPS)
    ]
    return {"task_id": f"task-{number}", "name": "Load", "steps": steps}


def submit(client: httpx.Client, numbers: range) -> None:
    """An agent with a plain retry: no answer, or a busy one, means asking the same again."""
    for number in numbers:
        while True:
            try:
                if client.post("/sagas", json=saga_body(number)).status_code in (200, 201):
                    break
            except httpx.TransportError:
                pass
            time.sleep(0.2)


def states(running: Console) -> dict[str, int]:
    rows = running.sql("SELECT state, count(*) FROM ledger_step GROUP BY state")
    return {str(state): int(count) for state, count in rows}


def test_killing_everything_under_load_loses_nothing_and_doubles_nothing(
    tmp_path: Path, stripe: str
) -> None:
    with console(tmp_path, stripe) as running:
        before = running.effects()
        client = running.client("loader")
        callers = [
            threading.Thread(target=submit, args=(client, range(n, SAGAS, CALLERS)))
            for n in range(CALLERS)
        ]
        for caller in callers:
            caller.start()
        killed = 0
        for _ in range(3):
            time.sleep(1.5)
            killed += running.kill("worker", "relay")
            running.flush_redis()
        for caller in callers:
            caller.join()
        assert killed >= 6
        everything = {"committed": SAGAS * STEPS}
        eventually(lambda: states(running) == everything, "every step committed", within_s=300)
        effects = running.effects() - before
        keys = running.sql("SELECT idempotency_key FROM ledger_step WHERE state = 'committed'")
        assert effects == {str(key): 1 for (key,) in keys}
        assert running.verify()[0] == 0


def test_postgres_killed_under_load_loses_nothing_and_doubles_nothing(
    tmp_path: Path, stripe: str
) -> None:
    """The embedded server is started again; web, relay and workers go on by themselves."""
    with console(tmp_path, stripe) as running:
        before = running.effects()
        client = running.client("loader")
        caller = threading.Thread(target=submit, args=(client, range(20)))
        caller.start()
        time.sleep(0.7)
        kill_postmaster(running)
        caller.join(60)
        assert not caller.is_alive()
        everything = {"committed": 20 * STEPS}
        eventually(lambda: settled(running, everything), "every step committed", within_s=300)
        assert set((running.effects() - before).values()) == {1}
        assert sum((running.effects() - before).values()) == 20 * STEPS
        assert running.verify()[0] == 0


def settled(running: Console, everything: dict[str, int]) -> bool:
    try:
        return states(running) == everything
    except psycopg.OperationalError:
        return False


def kill_postmaster(running: Console) -> None:
    pid_file = running.home.root / "postgres" / "postmaster.pid"
    os.kill(int(pid_file.read_text().splitlines()[0]), signal.SIGKILL)
