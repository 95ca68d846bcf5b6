"""Which steps need people, and whom. Pure: a policy is a value, a verdict is a function of it.

The default policy (design section 6) stands behind every policy file: its rules come last.
A policy is bound to by its digest, which is over everything that it says.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from datetime import timedelta
from fnmatch import fnmatchcase
from typing import Any, Literal

from approvals.expressions import CannotEvaluate, Document, compiled
from approvals.limits import Limit
from approvals.quorum import Need
from ledger import keys
from ledger.gate import Question, Verdict
from ledger.states import BlastRadius, Direction, Tier

logger = logging.getLogger(__name__)

_SIZES = tuple(BlastRadius)


@dataclass(frozen=True, slots=True)
class Terms:
    """On which terms people are asked. Times are in seconds; 0 is none.

    After `expires_s` it is a no, or the group `escalate_to` is asked. A yes can be taken back
    for `delay_s` before anything runs.
    """

    need: tuple[Need, ...]
    expires_s: int
    require_reason: bool = False
    escalate_to: str = ""
    remind_s: int = 0
    delay_s: int = 0

    def __post_init__(self) -> None:
        if not self.need or self.expires_s <= 0:
            raise ValueError("people are asked with at least one need, and for a limited time")


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule. Its conditions are all of them; the first rule that matches decides.

    `tool` and `agent` are globs; `blast_radius` means at least; no tiers or directions
    means every one; `when` is an expression in CEL.
    """

    name: str
    verdict: Literal["allow", "ask", "deny"]
    tool: str = "*"
    agent: str = "*"
    tiers: frozenset[Tier] = frozenset()
    directions: frozenset[Direction] = frozenset()
    blast_radius: BlastRadius = BlastRadius.LOW
    when: str = ""
    terms: Terms | None = None

    def why_not(self, question: Question, over: Document) -> str:
        """'' when this rule is about the question, else why it is not.

        Raises ValueError for an unknown radius, CannotEvaluate when `when` has no value.
        """
        if not fnmatchcase(question.tool, self.tool):
            return f"the tool {question.tool} is not {self.tool}"
        if not fnmatchcase(question.agent, self.agent):
            return f"the agent {question.agent} is not {self.agent}"
        if self.tiers and question.tier not in self.tiers:
            return f"the tier {question.tier} is not {' or '.join(sorted(self.tiers))}"
        if self.directions and question.direction not in self.directions:
            wanted = " or ".join(sorted(self.directions))
            return f"the direction {question.direction} is not {wanted}"
        if _SIZES.index(BlastRadius(question.blast_radius)) < _SIZES.index(self.blast_radius):
            return f"the blast radius {question.blast_radius} is below {self.blast_radius}"
        return "" if self._is_so(over) else f"it is not so that {self.when}"

    def _is_so(self, over: Document) -> bool:
        if not self.when:
            return True
        found = compiled(self.when).value(over)
        if not isinstance(found, bool):
            raise CannotEvaluate(f"{self.when} is neither true nor false")
        return found


@dataclass(frozen=True, slots=True)
class Policy:
    """Rules in their order, the terms where no rule has any, and limits. `file`: where from."""

    rules: tuple[Rule, ...]
    terms: Terms
    limits: tuple[Limit, ...] = ()
    file: str = field(default="", compare=False)
    digest: str = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "digest", keys.fingerprint(keys.canonical(self.as_json())))

    def as_json(self) -> dict[str, Any]:
        """The canonical form that the digest is over: every field, sets sorted."""
        return {
            "rules": [_rule_as_json(rule) for rule in self.rules],
            "terms": terms_as_json(self.terms),
            "limits": [asdict(limit) for limit in self.limits],
        }


@functools.cache
def terms_as_json(terms: Terms) -> dict[str, Any]:
    """{"need": [{"group", "count"}], "expires_s", …}, as a request keeps it. Not to be changed."""
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
        "when": rule.when,
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


@dataclass(frozen=True, slots=True)
class Considered:
    """One rule that was looked at. `why_not` is '' when it matched; `failed`: it has no value."""

    rule: Rule
    why_not: str
    failed: bool = False


def consider(policy: Policy, question: Question) -> Iterator[Considered]:
    """The rules in their order, up to the one that decides: the same for verdict and reasons."""
    over = document_of(question)
    for rule in policy.rules:
        try:
            why_not = rule.why_not(question, over)
        except (CannotEvaluate, ValueError) as error:
            yield Considered(rule, str(error), failed=True)
            return
        yield Considered(rule, why_not)
        if not why_not:
            return


def document_of(question: Question) -> Document:
    """What conditions are about (VARIABLES in approvals/policyfile.py)."""
    return Document(
        {
            "args": question.args,
            "step": {**question.step, "direction": str(question.direction)},
            "saga": question.saga,
            "tool": {
                "name": question.tool,
                "version": question.tool_version,
                "tier": str(question.tier),
                "blast_radius": str(question.blast_radius),
            },
            "agent": {"name": question.agent},
        }
    )


def judge(policy: Policy, question: Question) -> Verdict:
    """The verdict of a policy. What goes wrong in it, and silence, are `ask`, never `allow`.

    A denied undo is asked about instead: a policy may make it wait, never forbid it.
    """
    try:
        considered = list(consider(policy, question))
    except Exception:
        logger.exception("the policy failed on a step of %s", question.tool)
        return _verdict(policy, "ask", "a rule failed", None)
    last = considered[-1] if considered else None
    if last is None or (last.why_not and not last.failed):
        return _verdict(policy, "ask", "no rule matches", None)
    kind, rule = last.rule.verdict, last.rule
    if last.failed:
        logger.warning("rule %r has no value for %s: %s", rule.name, question.tool, last.why_not)
        return _verdict(policy, "ask", f"{rule.name} (cannot be evaluated)", rule.terms)
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


def terms_of(policy: Policy) -> Iterator[tuple[str, Terms]]:
    """Everybody whom this policy may ask: the rule's name and its terms."""
    for rule in policy.rules:
        if rule.verdict == "ask":
            yield rule.name, rule.terms or policy.terms
    yield "default terms", policy.terms


def groups_of(policy: Policy) -> Sequence[str]:
    """Every group that this policy may ask, sorted."""
    asked = [terms for _, terms in terms_of(policy)]
    needed = {need.group for terms in asked for need in terms.need}
    return sorted(needed | {terms.escalate_to for terms in asked if terms.escalate_to})


_in_use = DEFAULT


def current() -> Policy:
    """The policy of this process. Read once, at its start: it never changes while it runs."""
    return _in_use


def use(policy: Policy) -> None:
    """Make this the policy of the process; called when it starts (approvals/apps.py)."""
    global _in_use  # noqa: PLW0603 - the one thing that a process decides by
    _in_use = policy
