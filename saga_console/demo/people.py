"""The demo's cast: one agent and three people, made by the commands that anybody would use."""

from __future__ import annotations

import json
import secrets
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import saga_console

MANAGE = Path(saga_console.__file__).parents[1] / "manage.py"
COMMAND_TIMEOUT_S = 60


@dataclass(frozen=True, slots=True)
class Person:
    """Somebody who can log in to the pages, or use REST with the token."""

    name: str
    group: str
    password: str
    token: str


def cast(crew: list[tuple[str, str]]) -> tuple[str, list[Person]]:
    """The agent's token and the people (name, group), made side by side."""
    with ThreadPoolExecutor() as threads:
        token = threads.submit(agent_token)
        people = list(threads.map(lambda one: operator(*one), crew))
        return token.result(), people


def agent_token(name: str = "demo-agent") -> str:
    """A fresh bearer token for the agent of this name, in place of that of an earlier start."""
    return _manage("agent_token", name, "--renew", "--tools", "*")


def operator(name: str, group: str) -> Person:
    """A person of this group, with a fresh password and token in place of earlier ones."""
    password = secrets.token_urlsafe(9)
    words = ("operator", name, "--group", group, "--renew", "--password-stdin")
    token = _manage(*words, stdin=password)
    return Person(name, group, password, token)


def _manage(*words: str, stdin: str = "") -> str:
    """What a management command prints on stdout: for these, a token and nothing else."""
    ran = subprocess.run(
        [sys.executable, str(MANAGE), *words],
        input=stdin,
        capture_output=True,
        text=True,
        timeout=COMMAND_TIMEOUT_S,
        check=False,
    )
    if ran.returncode:
        raise RuntimeError(f"manage.py {words[0]} failed: {ran.stderr.strip()}")
    return ran.stdout.strip()


def welcome(base_url: str, crew: list[Person], agent: str, run: str) -> str:
    """Where to go, who to be and what to try."""
    hello = {
        "task_id": f"hello-{run}",
        "name": "My first saga",
        "steps": [
            {
                "step_id": "charge",
                "tool": "payments.charge",
                "args": {
                    "order_id": f"H-{run}",
                    "amount": 990,
                    "currency": "eur",
                    "payment_method": "pm_card_visa",
                },
            }
        ],
    }
    lines = [f"Open         {base_url}/", ""]
    for label, person in zip(["Log in as", *[""] * len(crew)], crew, strict=False):
        lines.append(f"{label:<12} {person.name:<8} {person.password:<14} ({person.group})")
    lines += [
        "",
        f"Agent token  {agent}",
        "",
        "Be the agent. Run this twice: the second time nothing is charged.",
        f"  curl -si {base_url}/api/v1/sagas \\",
        f"    -H 'Authorization: Bearer {agent}' \\",
        "    -H 'Content-Type: application/json' -H 'Prefer: wait=10' \\",
        f"    -d '{json.dumps(hello)}'",
        "",
        "Ctrl-C stops everything.",
    ]
    return "\n".join(lines)
