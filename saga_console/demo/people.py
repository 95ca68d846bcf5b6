"""The demo's cast: one agent and three people, made as the commands for tokens make them."""

from __future__ import annotations

import json
import secrets
from dataclasses import dataclass

AGENT = "demo-agent"


@dataclass(frozen=True, slots=True)
class Person:
    """Somebody who can log in to the pages, or use REST with the token."""

    name: str
    group: str
    password: str
    token: str


def cast(crew: list[tuple[str, str]]) -> tuple[str, list[Person]]:
    """The agent's token and the people (name, group), with all that is theirs made afresh."""
    from ledger.services import tokens  # noqa: PLC0415  (a demo tool's process has no Django)

    seated = []
    for name, group in crew:
        password = secrets.token_urlsafe(9)
        user = tokens.seat_operator(name, group=group, password=password)
        token = tokens.issue_operator_token(user, renew=True)
        seated.append(Person(name, group, password, token))
    return tokens.issue_agent_token(AGENT, tools=["*"], renew=True), seated


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
