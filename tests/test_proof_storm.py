"""Asked many times at once, over real HTTP: done once (case C20)."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Sequence
from typing import Any

import httpx

from tests.proofcast import Agent, Console, address, step, wait_for_states

# One client process: its threads post one body at one moment of the wall clock.
CLIENT = """
import json, sys, threading, time
import httpx
url, token, body, at, count = sys.argv[1], sys.argv[2], sys.argv[3], *map(float, sys.argv[4:])
headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
client = httpx.Client(headers=headers, timeout=30)
found = []
def ask():
    time.sleep(max(0, at - time.time()))
    answer = client.post(url, content=body)
    found.append([answer.status_code, answer.headers.get("Idempotent-Replayed", "")])
threads = [threading.Thread(target=ask) for _ in range(int(count))]
for thread in threads: thread.start()
for thread in threads: thread.join()
print(json.dumps(found))
"""
THREADS = 50


def ask_at_once(asked: Sequence[tuple[Agent, str, dict[str, Any]]]) -> list[httpx.Response]:
    """One thread for each, from one starting line."""
    line = threading.Barrier(len(asked))
    found: list[httpx.Response] = []

    def ask(who: Agent, saga: str, body: dict[str, Any]) -> None:
        line.wait(30)
        found.append(who.propose(saga, body))

    threads = [threading.Thread(target=ask, args=one) for one in asked]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    return found


def assert_one_was_accepted(answers: Sequence[tuple[int, str]]) -> None:
    """One 202; each other is the stored answer again, or `step-in-flight`."""
    count = Counter(answers)
    assert count.pop((202, "")) == 1, count
    assert set(count) <= {(200, "true"), (409, "")}, count
    assert sum(count.values()) == len(answers) - 1


def told(answers: Sequence[httpx.Response]) -> list[tuple[int, str]]:
    return [(a.status_code, a.headers.get("Idempotent-Replayed", "")) for a in answers]


def test_fifty_threads_with_one_step_make_one_effect(console: Console, prover: Agent) -> None:
    saga, email = prover.open(), address()
    answers = ask_at_once([(prover, saga, step("one", email))] * THREADS)
    assert len(answers) == THREADS
    assert_one_was_accepted(told(answers))
    wait_for_states(prover, [saga], "committed")
    assert len(console.customers(email)) == 1
    assert prover.kinds(saga)["step.proposed"] == 1


def test_four_processes_with_one_step_make_one_effect(console: Console, prover: Agent) -> None:
    saga, email = prover.open(), address()
    url = f"{console.url}/api/v1/sagas/{saga}/steps"
    words = [url, prover.token, json.dumps(step("one", email)), str(time.time() + 1.5), "13"]
    clients = [
        subprocess.Popen([sys.executable, "-c", CLIENT, *words], stdout=subprocess.PIPE)
        for _ in range(4)
    ]
    answers = [
        tuple(one) for client in clients for one in json.loads(client.communicate(timeout=60)[0])
    ]
    assert len(answers) == 4 * 13
    assert_one_was_accepted(answers)
    wait_for_states(prover, [saga], "committed")
    assert len(console.customers(email)) == 1
    assert prover.kinds(saga)["step.proposed"] == 1


def test_two_sagas_of_two_agents_with_one_effect_key_make_one_effect(
    console: Console, prover: Agent
) -> None:
    other, email = console.agent("other"), address()
    sagas = [(prover, prover.open()), (other, other.open())]
    asked = [
        (who, saga, step(f"{name}-{n % 5}", email, "proof.once"))
        for n in range(THREADS // 2)
        for name, (who, saga) in zip(("mine", "theirs"), sagas, strict=True)
    ]
    answers = ask_at_once(asked)
    assert len(answers) == THREADS
    assert Counter(status for status, _ in told(answers))[202] == 1
    assert {status for status, _ in told(answers)} <= {200, 202, 409}
    proposed = [prover.kinds(sagas[0][1]), other.kinds(sagas[1][1])]
    assert sum(kinds["step.proposed"] for kinds in proposed) == 1
    eventually_one(console, email)
    console.assert_verifies()


def eventually_one(console: Console, email: str) -> None:
    """The one effect comes, and no second one behind it."""
    deadline = time.monotonic() + 20
    while not console.customers(email):
        assert time.monotonic() < deadline, "the effect never came"
        time.sleep(0.05)
    time.sleep(0.5)
    assert len(console.customers(email)) == 1
