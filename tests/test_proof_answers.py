"""Twenty people in four processes answer one request: one decision, one effect, true words."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Sequence
from typing import Any

from saga_console.demo.approver import Approver
from tests.proofcast import Agent, Console, refund, wait_for_states

PEOPLE = 20
PROCESSES = 4
# One process: five people, who post one body at one moment of the wall clock.
CLIENT = """
import json, sys, threading, time
import httpx
url, body, at, tokens = sys.argv[1], sys.argv[2], float(sys.argv[3]), json.loads(sys.argv[4])
found = []
def ask(token):
    headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
    with httpx.Client(headers=headers, timeout=60) as client:
        time.sleep(max(0, at - time.time()))
        answer = client.post(url, content=body)
        found.append([answer.status_code, answer.json()])
threads = [threading.Thread(target=ask, args=(token,)) for token in tokens]
for thread in threads: thread.start()
for thread in threads: thread.join()
print(json.dumps(found))
"""
SEAT = """
import json
from ledger.services import tokens
made = [tokens.seat_operator(f"{name}-{n:02}", group="approvers") for n in range(count)]
print("tokens " + json.dumps([tokens.issue_operator_token(user) for user in made]))
"""


def seat(console: Console, name: str) -> list[str]:
    """The tokens of twenty approvers."""
    code = SEAT.replace("{name}", name).replace("count", str(PEOPLE))
    done = console.manage("shell", "-c", code)
    line = next(one for one in done.stdout.splitlines() if one.startswith("tokens "))
    found: list[str] = json.loads(line.removeprefix("tokens "))
    return found


def all_at_once(url: str, people: Sequence[str], body: Any) -> list[tuple[int, dict[str, Any]]]:
    """Every answer, from four processes and one starting line."""
    share = PEOPLE // PROCESSES
    at = str(time.time() + 4)
    clients = [
        subprocess.Popen(
            [
                *(sys.executable, "-c", CLIENT, url, json.dumps(body), at),
                json.dumps(people[first : first + share]),
            ],
            stdout=subprocess.PIPE,
        )
        for first in range(0, PEOPLE, share)
    ]
    told = [json.loads(client.communicate(timeout=120)[0]) for client in clients]
    return [(status, document) for found in told for status, document in found]


def charge_of(prover: Agent, saga: str) -> str:
    return str(prover.saga(saga)["steps"][0]["args"]["charge"])


def test_twenty_approvals_at_once_are_one_decision_and_one_effect(
    console: Console, prover: Agent
) -> None:
    saga = refund(console, prover)
    (step,) = prover.saga(saga)["steps"]
    url = f"{console.url}/api/v1/approvals/{step['approval']['id']}/approve"
    body = {"args_digest": step["args_digest"]}
    answers = all_at_once(url, seat(console, "crowd"), body)
    assert len(answers) == PEOPLE
    won = [document for status, document in answers if status == 200]
    lost = [(status, document) for status, document in answers if status != 200]
    assert len(won) == 1, answers
    (winner,) = (vote["by"] for vote in won[0]["decisions"])
    assert len(lost) == PEOPLE - 1
    for status, problem in lost:
        assert (status, problem["type"].rsplit("/", 1)[-1]) == (409, "already-decided")
        assert f"already approved by {winner}" in problem["detail"]
        assert problem["decision"]["by"] == winner
    wait_for_states(prover, [saga], "committed")
    kinds = prover.kinds(saga)
    assert kinds["approval.approved"] == 1
    assert kinds["approval.late"] == PEOPLE - 1
    assert kinds["attempt.started"] == 1
    assert len(console.refunds(charge_of(prover, saga))) == 1


def test_twenty_edits_at_once_are_one_version_and_one_effect(
    console: Console, prover: Agent
) -> None:
    saga = refund(console, prover)
    (step,) = prover.saga(saga)["steps"]
    url = f"{console.url}/api/v1/approvals/{step['approval']['id']}/approve"
    args = step["args"] | {"amount": step["args"]["amount"] - 1}
    answers = all_at_once(
        url, seat(console, "editors"), {"args_digest": step["args_digest"], "args": args}
    )
    assert [status for status, _ in answers].count(200) == 1, answers
    assert {status for status, _ in answers} == {200, 409}
    wait_for_states(prover, [saga], "committed")
    kinds = prover.kinds(saga)
    assert (kinds["approval.edited"], kinds["approval.approved"]) == (1, 1)
    (made,) = console.refunds(charge_of(prover, saga))
    assert made["amount"] == args["amount"]
    console.assert_verifies()


def test_the_demos_olivia_answers_for_her_own_run_and_for_nobody_elses(
    console: Console, prover: Agent
) -> None:
    """What waited before a demo was started again, and a reader's own refund, wait for a person."""
    others, hers = refund(console, prover), refund(console, prover, task_id="refund-cafe01-again")
    said: list[str] = []
    token = seat(console, "olivia")[0]
    assert Approver(console.url, token, said.append, run="cafe01").run_once() == 1
    wait_for_states(prover, [hers], "committed")
    assert prover.states(others)[-1] == "awaiting_approval"
    assert len(said) == 1
