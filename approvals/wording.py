"""A policy in words, the same on pages, in commands and in the API. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal

from approvals.limits import Limit
from approvals.policy import Policy, Rule, Terms, consider
from approvals.sentences import length, number
from ledger.gate import Question
from ledger.states import Direction


@dataclass(frozen=True, slots=True)
class Reason:
    """What became of one rule: `why` it did not decide, or that it does."""

    rule: str
    verdict: str
    why: str
    decides: bool


def reasons(policy: Policy, question: Question) -> list[Reason]:
    """Each rule that was looked at, in its order; the last one decides."""
    found = [
        Reason(
            one.rule.name,
            "ask" if one.failed else one.rule.verdict,
            _why(policy, one.rule, one.why_not, question, failed=one.failed),
            decides=one.failed or not one.why_not,
        )
        for one in consider(policy, question)
    ]
    if not found or not found[-1].decides:
        found.append(Reason("no rule", "ask", "No rule matches, so people are asked.", True))
    return found


def _why(policy: Policy, rule: Rule, why_not: str, question: Question, *, failed: bool) -> str:
    if failed:
        told = f"It cannot be evaluated ({why_not}), and an error asks: "
        return told + asked(rule.terms or policy.terms)
    if why_not:
        return f"It does not match: {why_not}."
    if rule.verdict == "deny" and question.direction != Direction.FORWARD:
        return f"It matches; an undo is never denied, so it asks: {asked(policy.terms)}"
    if rule.verdict == "ask":
        return f"It matches and asks: {asked(rule.terms or policy.terms)}"
    return f"It matches: {'it may run' if rule.verdict == 'allow' else 'it is denied'}."


def asked(terms: Terms) -> str:
    """'1 of approvers and 1 of finance, within 4 h, then oncall is asked.'"""
    need = " and ".join(f"{need.count} of {need.group}" for need in terms.need)
    then = f"{terms.escalate_to} is asked" if terms.escalate_to else "it is a no"
    parts = [f"{need}, within {length(terms.expires_s)}, then {then}"]
    if terms.remind_s:
        parts.append(f"a reminder every {length(terms.remind_s)}")
    if terms.require_reason:
        parts.append("a yes needs a reason")
    if terms.delay_s:
        parts.append(f"a yes can be taken back for {length(terms.delay_s)}")
    return "; ".join(parts) + "."


def conditions(rule: Rule) -> Iterator[tuple[str, str]]:
    """What a rule is about, as name and value; nothing for what it leaves open."""
    if rule.tool != "*":
        yield "tool", rule.tool
    if rule.agent != "*":
        yield "agent", rule.agent
    if rule.tiers:
        yield "tier", " or ".join(sorted(rule.tiers))
    if rule.blast_radius != "low":
        yield "blast radius", f"at least {rule.blast_radius}"
    if rule.directions:
        yield "direction", " or ".join(sorted(rule.directions))
    if rule.when:
        yield "when", rule.when


def limited(limit: Limit) -> str:
    """'At most 5,000 in 24 h for each agent, the sum of args.amount; over it people are asked.'"""
    whose = {"agent": "for each agent", "tool": "for each tool", "everyone": "for all together"}
    what = f"the sum of {limit.sum}" if limit.sum else "counted in runs"
    over = "people are asked" if limit.over == "ask" else "it is denied"
    most = number(Decimal(repr(limit.max)))
    return f"At most {most} in {length(limit.per_s)} {whose[limit.by]}, {what}; over it {over}."
