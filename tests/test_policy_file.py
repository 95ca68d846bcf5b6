"""The policy file: every key means what it says, and every fault is told with its line."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from approvals.policy import DEFAULT, judge
from approvals.policyfile import read
from approvals.quorum import Need
from ledger.states import BlastRadius, Direction, Tier
from saga_console.home import BASE_DIR
from tests.policycast import faults, written
from tests.test_policy import question

SAMPLE = BASE_DIR / "deploy" / "policy.toml"
LARGE = """
[[rule]]
name = "large refunds"
tool = "payments.*"
when = "args.amount > 100000 && saga.metadata.env == 'prod'"
verdict = "ask"
need = [ {group = "approvers", count = 1}, {group = "finance", count = 1} ]
expires = "4h"
escalate_to = "oncall"
remind = "30m"
require_reason = true
delay = "60s"
"""


def test_the_file_of_the_design_means_what_it_says() -> None:
    rule = written(LARGE).rules[0]
    assert rule.terms is not None
    assert rule.terms.need == (Need("approvers"), Need("finance"))
    assert (rule.terms.expires_s, rule.terms.remind_s, rule.terms.delay_s) == (14400, 1800, 60)
    assert (rule.terms.escalate_to, rule.terms.require_reason) == ("oncall", True)


def test_a_condition_is_over_args_and_saga() -> None:
    policy = written(LARGE)
    large = {"tool": "payments.refund", "args": {"amount": 200_000}}
    prod = {"metadata": {"env": "prod"}}
    assert judge(policy, question(**large, saga=prod)).rule == "large refunds"
    elsewhere = question(**large, saga={"metadata": {"env": "dev"}})
    assert judge(policy, elsewhere).rule == DEFAULT.rules[0].name
    small = question(tool="payments.refund", args={"amount": 1}, saga=prod)
    assert judge(policy, small).rule == DEFAULT.rules[0].name


@pytest.mark.parametrize(
    ("condition", "rule"),
    [
        ('tool = "mail.*"', {"tool": "mail.send"}),
        ('agent = "bot-*"', {"agent": "bot-7"}),
        ('tier = "pivot"', {"tier": Tier.PIVOT}),
        ('blast_radius = "medium"', {"blast_radius": BlastRadius.HIGH}),
        ('direction = "compensate"', {"direction": Direction.COMPENSATE}),
        ("when = \"agent.name == 'bot-7'\"", {"agent": "bot-7"}),
        ("when = \"tool.tier == 'pivot' && tool.name.startsWith('mail.')\"", {"tool": "mail.x"}),
        ("when = \"step.direction == 'correct'\"", {"direction": Direction.CORRECT}),
        ('when = "step.position > 3"', {"step": {"position": 4}}),
    ],
)
def test_each_condition_narrows_a_rule(condition: str, rule: dict[str, object]) -> None:
    policy = written(f'[[rule]]\nname = "this"\nverdict = "ask"\n{condition}\n')
    other = {"tool": "a.b", "agent": "x", "blast_radius": BlastRadius.LOW, "step": {"position": 1}}
    other |= {"tier": Tier.COMPENSATABLE}
    tier = {"tier": Tier.PIVOT} if "tool.tier" in condition else {}
    assert judge(policy, question(**{**other, **tier, **rule})).rule == "this"
    assert judge(policy, question(**other)).rule != "this"


def test_behind_the_rules_of_a_file_stand_the_default_ones() -> None:
    policy = written(LARGE)
    assert judge(policy, question()).kind == "ask"
    assert judge(policy, question(tier=Tier.COMPENSATABLE)).kind == "allow"
    assert policy.rules[-2:] == DEFAULT.rules


def test_an_empty_file_is_the_default_policy() -> None:
    assert written("").digest == DEFAULT.digest


def test_a_rule_that_asks_has_an_end_also_when_it_names_none() -> None:
    """Case D15: no question without a deadline."""
    policy = written('[[rule]]\nname = "all"\nverdict = "ask"\n')
    assert judge(policy, question()).terms["expires_s"] == 24 * 3600


def test_the_sample_policy_can_be_used() -> None:
    policy = read(SAMPLE)
    ask = judge(policy, question(tool="payments.refund", args={"amount": 200_000}))
    assert (ask.kind, ask.rule) == ("ask", "large refunds")
    small = judge(policy, question(tool="payments.refund", args={"amount": 200}))
    assert (small.kind, small.rule) == ("allow", "small refunds")
    assert len(policy.limits) == 2


BAD = """
[[rule]]
name = "large"
tool = "payments.*"
when = "args.amount > 1 && sage.metadata.env == 'prod'"
verdict = "ask"
need = [
  {group = "approvers", count = 0},
  {group = "finance", count = 1, kind = "x"},
]
expires = "4 hours"
escalte_to = "oncall"
on_expiry = "approve"

[[rule]]
name = "large"
verdict = "deny"
direction = "compensate"
need = []

[[limit]]
name = "x"
sum = "args.amount"
count = true
by = "agents"
per = "24h"
max = "5"
over = "allow"

[[limt]]
"""


def test_every_fault_of_a_file_is_told_with_its_line() -> None:
    assert faults(BAD) == [
        '3: rule "large": there are two of this name',
        "5: rule \"large\": when: 'sage' is unknown; there are args, step, saga, tool, agent",
        '8: rule "large": need.0.count: 0 is less than the minimum of 1',
        "9: rule \"large\": need.1: unknown field 'kind'; known are group, count",
        '11: rule "large": expires: write a time such as "90s", "30m", "4h" or "1d"',
        "12: rule \"large\": unknown field 'escalte_to'; did you mean 'escalate_to'?",
        "13: rule \"large\": unknown field 'on_expiry'; did you mean 'expires'?",
        '16: rule "large": there are two of this name',
        '17: rule "large": an undo can be made to wait for people, but never be denied',
        '19: rule "large": need: [] should be non-empty',
        '19: rule "large": need: only a rule that asks has it, and this one says deny',
        '21: limit "x": say either what it sums (sum) or that it counts (count = true)',
        "25: limit \"x\": by: 'agents' is not one of ['agent', 'tool', 'everyone']",
        '27: limit "x": max: must be number',
        "28: limit \"x\": over: 'allow' is not one of ['ask', 'deny']",
        "30: the file: unknown field 'limt'; did you mean 'limit'?",
    ]


LIMIT = '[[limit]]\nname = "l"\nby = "agent"\nper = "1h"\nmax = 1\nover = "ask"\n'
RULE = '[[rule]]\nname = "r"\nverdict = "ask"\n'


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("[[rule]\n", "1: "),
        ('[[rule]]\nname = "r"\n', "1: rule \"r\": 'verdict' is a required property"),
        (RULE + "need = []", "4: "),
        (RULE + 'need = [{group = "", count = 1}]', "4: "),
        (RULE + 'need = [{group = "a", count = -1}]', "4: "),
        (RULE + 'need = [{group = "a", count = true}]', "4: "),
        (RULE + 'need = [{group = "a"}]', "4: "),
        (RULE + 'need = [{group = "a", count = 1}, {group = "a", count = 1}]', "there twice"),
        (RULE + 'expires = "0s"', "from 1 s to"),
        (RULE + 'expires = "365d"', "from 1 s to"),
        (RULE + "expires = 5", "must be string"),
        (RULE + 'expires = "1h"\nremind = "2h"', '5: rule "r": remind: the question ends before'),
        (RULE + 'delay = "2d"', "4: "),
        (RULE + 'verdict_on_error = "allow"', "unknown field"),
        (RULE + 'when = ""', "4: "),
        (RULE + 'when = "args.amount >"', "it cannot be read: column"),
        (RULE + "when = \"agent == 'bot'\"", "'agent' is not a text: write agent.name"),
        (RULE + "when = \"agent.nme == 'bot'\"", "agent has no 'nme'; it has name"),
        (RULE + 'when = "args.s.matches(args.p)"', "the pattern of matches() must be written"),
        (RULE + 'when = "fetch(args.url)"', "there is no function 'fetch'"),
        (RULE + 'when = "now > 5"', "'now' is unknown"),
        (RULE + "due = 2030-01-01", "write dates and times as text"),
        ("rule = 5", "must be array"),
        ('[rule]\nname = "r"', "must be array"),
        (
            LIMIT + 'sum = "saga.name"',
            "'saga' is unknown; there are args",
        ),
        (
            LIMIT.replace("max = 1", "max = -1") + "count = true",
            "5: ",
        ),
    ],
)
def test_what_cannot_be_meant_is_refused(text: str, told: str) -> None:
    found = faults(text)
    assert any(told in one or one.startswith(told) for one in found), found


def test_no_key_makes_silence_a_yes() -> None:
    """Case D6: the file has no word for it."""
    for key in ("on_expiry", "default", "then", "auto_approve"):
        assert "unknown field" in faults(RULE + f'{key} = "approve"')[0]


def manage(*argv: str, home: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(BASE_DIR / "manage.py"), *argv],
        env=os.environ | {"SAGA_HOME": str(home)} | environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


def test_the_check_exits_0_or_1_with_line_and_reason(tmp_path: Path) -> None:
    good = manage("policy", "check", str(SAMPLE), home=tmp_path)
    assert (good.returncode, good.stderr) == (0, "")
    assert f"digest {read(SAMPLE).digest}" in good.stdout
    (tmp_path / "bad.toml").write_text(BAD, encoding="utf-8")
    bad = manage("policy", "check", str(tmp_path / "bad.toml"), home=tmp_path)
    assert bad.returncode == 1
    assert len(bad.stdout.splitlines()) == 16
    assert f"{tmp_path}/bad.toml:13: rule \"large\": unknown field 'on_expiry'" in bad.stdout


def test_a_policy_that_cannot_be_used_stops_every_start(tmp_path: Path) -> None:
    """Case C5: what cannot be read is refused, and nobody is asked whether it is all right."""
    for file, told in (("bad.toml", "bad.toml:13: rule"), ("none.toml", "cannot be read")):
        if file == "bad.toml":
            (tmp_path / file).write_text(BAD, encoding="utf-8")
        found = manage("check", home=tmp_path, SAGA_POLICY=str(tmp_path / file))
        assert found.returncode == 1
        assert found.stderr.startswith("SAGA_POLICY: nothing starts under this policy\n")
        assert told in found.stderr


def test_a_process_decides_by_the_file_that_it_was_started_with(tmp_path: Path) -> None:
    told = (
        "import django; django.setup();from approvals import policy; print(policy.current().digest)"
    )
    found = subprocess.run(
        [sys.executable, "-c", told],
        env=os.environ | {"SAGA_HOME": str(tmp_path), "SAGA_POLICY": str(SAMPLE)},
        cwd=BASE_DIR,
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert found.stdout.strip() == read(SAMPLE).digest
