"""The default policy, and the rule that nothing but a rule allows."""

from __future__ import annotations

import dataclasses
import itertools

import pytest

from approvals import policy
from approvals.policy import DEFAULT, ONE_APPROVER, Policy, Rule, judge
from approvals.quorum import Need
from ledger.gate import Question
from ledger.states import BlastRadius, Direction, Tier


def question(**more: object) -> Question:
    given: dict[str, object] = {
        "direction": Direction.FORWARD,
        "tool": "money.refund",
        "tool_version": "1",
        "tier": Tier.PIVOT,
        "blast_radius": BlastRadius.HIGH,
        "args": {},
        "agent": "refunder",
        "saga": {},
        "step": {},
    }
    return Question(**{**given, **more})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("tier", "radius", "direction"), list(itertools.product(Tier, BlastRadius, Direction))
)
def test_only_high_and_irreversible_steps_and_corrections_are_asked(
    tier: Tier, radius: BlastRadius, direction: Direction
) -> None:
    held = (
        tier != Tier.COMPENSATABLE
        and radius == BlastRadius.HIGH
        and direction != Direction.COMPENSATE
    )
    verdict = judge(DEFAULT, question(tier=tier, blast_radius=radius, direction=direction))
    assert verdict.kind == ("ask" if held else "allow")


def test_the_default_asks_one_approver_for_a_day() -> None:
    terms = judge(DEFAULT, question()).terms
    assert terms["need"] == [{"group": "approvers", "count": 1}]
    assert terms["expires_s"] == 24 * 3600
    assert terms["require_reason"] is False


def test_the_ledgers_own_doubt_asks_where_the_policy_would_allow() -> None:
    verdict = judge(DEFAULT, question(tier=Tier.COMPENSATABLE, must_ask="a duplicate?"))
    assert verdict.kind == "ask"
    assert verdict.terms["need"] == [{"group": "approvers", "count": 1}]


def test_an_error_in_a_rule_asks_and_never_allows() -> None:
    allows_all = Policy(rules=(Rule("all", "allow"),), terms=ONE_APPROVER)
    assert judge(allows_all, question(blast_radius="enormous")).kind == "ask"


def test_a_policy_without_a_matching_rule_asks() -> None:
    only_mail = Policy(rules=(Rule("mail", "allow", tool="mail.*"),), terms=ONE_APPROVER)
    assert judge(only_mail, question(tool="mail.send")).kind == "allow"
    assert judge(only_mail, question()).kind == "ask"


def test_the_first_matching_rule_decides() -> None:
    rules = (Rule("no", "deny", tool="money.*"), Rule("yes", "allow"))
    assert judge(Policy(rules, ONE_APPROVER), question()).rule == "no"


def test_a_yes_cannot_be_asked_for_what_a_rule_denies() -> None:
    denies = Policy((Rule("no", "deny"),), ONE_APPROVER)
    assert judge(denies, question(must_ask="repeat")).kind == "deny"


@pytest.mark.parametrize("direction", [Direction.COMPENSATE, Direction.CORRECT])
def test_an_undo_can_be_made_to_wait_but_never_forbidden(direction: Direction) -> None:
    denies = Policy((Rule("no", "deny"),), ONE_APPROVER)
    assert judge(denies, question(direction=direction)).kind == "ask"


def test_the_digest_changes_with_everything_that_a_policy_says() -> None:
    first = DEFAULT.rules[0]
    others = [
        dataclasses.replace(DEFAULT, terms=dataclasses.replace(ONE_APPROVER, expires_s=60)),
        dataclasses.replace(
            DEFAULT, terms=dataclasses.replace(ONE_APPROVER, need=(Need("finance"),))
        ),
        *(
            dataclasses.replace(
                DEFAULT, rules=(dataclasses.replace(first, **change), *DEFAULT.rules[1:])
            )
            for change in (
                {"name": "other"},
                {"verdict": "deny"},
                {"tool": "a.*"},
                {"agent": "b"},
                {"tiers": frozenset({Tier.PIVOT})},
                {"directions": frozenset({Direction.FORWARD})},
                {"blast_radius": BlastRadius.MEDIUM},
                {"terms": ONE_APPROVER},
            )
        ),
    ]
    digests = {DEFAULT.digest, *(other.digest for other in others)}
    assert len(digests) == 1 + len(others)
    assert dataclasses.replace(DEFAULT).digest == DEFAULT.digest


def test_people_are_never_asked_without_a_need_or_a_deadline() -> None:
    with pytest.raises(ValueError, match="limited time"):
        policy.Terms(need=(), expires_s=60)
    with pytest.raises(ValueError, match="limited time"):
        policy.Terms(need=(Need("approvers"),), expires_s=0)
