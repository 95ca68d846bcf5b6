from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render

from approvals import policy, queries_policy, wording
from approvals.limits import Limit
from approvals.policy import Policy, Rule
from approvals.policyfile import InvalidPolicy, read


@dataclass(frozen=True, slots=True)
class RuleLine:
    """One rule for people: what it is about, what it says, and who is missing."""

    rule: Rule
    about: Sequence[tuple[str, str]]
    says: str
    missing: str
    is_default: bool


def policy_page(request: HttpRequest) -> HttpResponse:
    """The policy that this process decides by, and whether the people it needs are there."""
    now = policy.current()
    missing = dict(queries_policy.unmeetable(now))
    context = {
        "policy": now,
        "rules": [_line(now, rule, missing) for rule in now.rules],
        "limits": [(limit, wording.limited(limit), _about(limit)) for limit in now.limits],
        "on_disk": _on_disk(now),
        "unroutable": queries_policy.unroutable(),
    }
    return render(request, "approvals/policy.html", context)


def _line(now: Policy, rule: Rule, missing: dict[str, str]) -> RuleLine:
    says = {
        "allow": "It may run.",
        "deny": "It is denied. An undo is asked about instead.",
        "ask": wording.asked(rule.terms or now.terms),
    }[rule.verdict]
    return RuleLine(
        rule=rule,
        about=list(wording.conditions(rule)),
        says=says,
        missing=missing.get(rule.name, ""),
        is_default=rule in policy.DEFAULT.rules,
    )


def _about(limit: Limit) -> list[tuple[str, str]]:
    pairs = (("tool", limit.tool), ("agent", limit.agent))
    return [(name, value) for name, value in pairs if value != "*"]


def _on_disk(now: Policy) -> str:
    """What is different about the file by now, or ''. Only a restart reads it."""
    if not now.file:
        return ""
    try:
        found = read(now.file)
    except InvalidPolicy as error:
        return f"The file can no longer be read: {error.faults[0]}. A restart would be refused."
    if found.digest != now.digest:
        return f"The file has changed and now has the digest {found.digest}."
    return ""
