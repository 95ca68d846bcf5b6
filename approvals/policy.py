"""Which steps need people, and whom. Pure: a policy is a value, a verdict is a function of it.

Today there is one policy, the default of design section 6. It is data of the same kind that
a policy file will be, and it is bound to by its digest.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from datetime import timedelta
from fnmatch import fnmatchcase
from typing import Any, Literal

from approvals.quorum import Need
from ledger import keys
from ledger.gate import Question, Verdict
from ledger.states import BlastRadius, Direction, Tier

logger = logging.getLogger(__name__)

_SIZES = tuple(BlastRadius)


@dataclass(frozen=True, slots=True)
class Terms:
    """On which terms people are asked. `expires_s` is seconds, and then it is a no."""

    need: tuple[Need, ...]
    expires_s: int
    require_reason: bool = False

    def __post_init__(self) -> None:
        if not self.need or self.expires_s <= 0:
            raise ValueError("people are asked with at least one need, and for a limited time")


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule. Its conditions are all of them; the first rule that matches decides.

    `tool` and `agent` are globs; `blast_radius` means at least; no tiers or directions
    means every one.
    """

    name: str
    verdict: Literal["allow", "ask", "deny"]
    tool: str = "*"
    agent: str = "*"
    tiers: frozenset[Tier] = frozenset()
    directions: frozenset[Direction] = frozenset()
    blast_radius: BlastRadius = BlastRadius.LOW
    terms: Terms | None = None

    def matches(self, question: Question) -> bool:
        """Whether this rule is about the question. Raises ValueError for an unknown radius."""
        return (
            fnmatchcase(question.tool, self.tool)
            and fnmatchcase(question.agent, self.agent)
            and (not self.tiers or question.tier in self.tiers)
            and (not self.directions or question.direction in self.directions)
            and _SIZES.index(BlastRadius(question.blast_radius)) >= _SIZES.index(self.blast_radius)
        )


@dataclass(frozen=True, slots=True)
class Policy:
    """Rules in their order, and the terms for questions that no rule has terms for."""

    rules: tuple[Rule, ...]
    terms: Terms
    digest: str = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "digest", keys.fingerprint(keys.canonical(self.as_json())))

    def as_json(self) -> dict[str, Any]:
        """The canonical form that the digest is over: every field, sets sorted."""
        return {
            "rules": [_rule_as_json(rule) for rule in self.rules],
            "terms": terms_as_json(self.terms),
        }


def terms_as_json(terms: Terms) -> dict[str, Any]:
    """{"need": [{"group", "count"}], "expires_s", "require_reason"}, as a request keeps it."""
    return asdict(terms) | {"need": [asdict(need) for need in terms.need]}


def _rule_as_json(rule: Rule) -> dict[str, Any]:
    return {
        "name": rule.name,
        "verdict": rule.verdict,
        "tool": rule.tool,
        "agent": rule.agent,
        "tiers": sorted(rule.tiers),
        "directions": sorted(rule.directions),
        "blast_radius": rule.blast_radius.value,
        "terms": terms_as_json(rule.terms) if rule.terms else None,
    }


ONE_APPROVER = Terms(need=(Need("approvers"),), expires_s=int(timedelta(hours=24).total_seconds()))
DEFAULT = Policy(
    rules=(
        Rule(
            name="far-reaching and without an inverse",
            verdict="ask",
            tiers=frozenset({Tier.PIVOT, Tier.NON_COMPENSATABLE}),
            # An undo is never held by default: it makes the world smaller, not larger.
            directions=frozenset({Direction.FORWARD, Direction.CORRECT}),
            blast_radius=BlastRadius.HIGH,
        ),
        Rule(name="everything else", verdict="allow"),
    ),
    terms=ONE_APPROVER,
)


def judge(policy: Policy, question: Question) -> Verdict:
    """The verdict of a policy. What goes wrong in it, and silence, are `ask`, never `allow`.

    A denied undo is asked about instead: a policy may make it wait, never forbid it.
    """
    try:
        rule = next((rule for rule in policy.rules if rule.matches(question)), None)
    except Exception:
        logger.exception("a rule of the policy failed on a step of %s", question.tool)
        return _verdict(policy, "ask", "a rule failed", None)
    if rule is None:
        return _verdict(policy, "ask", "no rule matches", None)
    kind = rule.verdict
    if kind == "deny" and question.direction != Direction.FORWARD:
        kind = "ask"
    if kind == "allow" and question.must_ask:
        kind = "ask"
    return _verdict(policy, kind, rule.name, rule.terms)


def _verdict(
    policy: Policy, kind: Literal["allow", "ask", "deny"], rule: str, terms: Terms | None
) -> Verdict:
    shown = terms_as_json(terms or policy.terms) if kind == "ask" else {}
    return Verdict(kind=kind, rule=rule, policy_digest=policy.digest, terms=shown)


def groups_of(policy: Policy) -> Sequence[str]:
    """Every group that this policy may ask, sorted."""
    asked = [rule.terms or policy.terms for rule in policy.rules if rule.verdict != "allow"]
    return sorted({need.group for terms in (*asked, policy.terms) for need in terms.need})


@functools.cache
def current() -> Policy:
    """The policy of this process. Read once: a process never changes it while it runs."""
    return DEFAULT
