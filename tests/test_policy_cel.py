"""Conditions in CEL: typed, without side effects, and never slower than a document deserves."""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import time
from typing import Any

import pytest

from approvals.expressions import MAX_COST, CannotEvaluate, Document, compiled
from approvals.limits import Limit
from approvals.policy import judge
from saga_console.home import BASE_DIR
from tests.policycast import written
from tests.test_policy import question

# What one hostile document may cost whoever judges it; it is about 0.1 s on a quiet machine.
LONGEST_S = 2.0
MORE_MEMORY_MB = 200


def rule(when: str, verdict: str = "allow") -> str:
    return f'[[rule]]\nname = "this"\nverdict = "{verdict}"\nwhen = {json.dumps(when)}\n'


def value(source: str, **args: Any) -> Any:
    return compiled(source).value(Document({"args": args, "saga": {"metadata": {}}}))


@pytest.mark.parametrize(
    ("source", "args", "expected"),
    [
        ("args.amount > 100", {"amount": 101}, True),
        ("args.amount > 100", {"amount": 100.5}, True),
        ("args.amount > 100 && saga.metadata.env == 'prod'", {"amount": 1}, False),
        ("has(args.note) && args.note != ''", {}, False),
        ("'note' in args", {"note": None}, True),
        ("args.lines.exists(l, l.price > 5)", {"lines": [{"price": 3}, {"price": 9}]}, True),
        ("args.lines.all(l, l.price > 5)", {"lines": []}, True),
        ("size(args.to) > 2", {"to": ["a", "b", "c"]}, True),
        ("args.to.matches('@example[.]com$')", {"to": "a@example.com"}, True),
        ("args.to == args.cc", {"to": "a", "cc": 1}, False),
    ],
)
def test_a_condition_has_the_value_that_cel_gives_it(
    source: str, args: dict[str, Any], expected: bool
) -> None:
    assert value(source, **args) is expected


@pytest.mark.parametrize(
    ("source", "args"),
    [
        ("args.amount > 100", {}),
        ("args.amount > 100", {"amount": "101"}),
        ("args.amount > 100", {"amount": None}),
        ("saga.metadata.env == 'prod'", {}),
        ("args.amount", {"amount": 5}),
        ("args.note", {"note": "true"}),
        ("args.amount / args.parts > 1", {"amount": 5, "parts": 0}),
        ("args.lines[3].price > 1", {"lines": []}),
        ("int(args.amount) > 5", {"amount": 1e300}),
        ("args.amount * args.amount > 5", {"amount": 2**53 - 1}),
        ("timestamp(args.at) > timestamp('2030-01-01T00:00:00Z')", {"at": "soon"}),
    ],
)
def test_a_condition_without_a_value_asks_and_never_allows(
    source: str, args: dict[str, Any]
) -> None:
    verdict = judge(written(rule(source)), question(args=args, saga={"metadata": {}}))
    assert (verdict.kind, verdict.rule) == ("ask", "this (cannot be evaluated)")


def test_an_error_in_a_rule_that_asks_asks_those_whom_it_names() -> None:
    text = rule("args.amount > 1", "ask") + 'need = [{group = "finance", count = 2}]\n'
    terms = judge(written(text), question(args={})).terms
    assert terms["need"] == [{"group": "finance", "count": 2}]


def test_an_error_in_a_rule_that_denies_asks() -> None:
    assert judge(written(rule("args.amount > 1", "deny")), question(args={})).kind == "ask"


NUMBERS = list(range(20_000))
HOSTILE = [
    ("args.l.map(x, args.l).size() > 0", {"l": list(range(1000))}),
    ("args.l.map(x, args.l).map(y, y + y).size() > 0", {"l": list(range(1000))}),
    ("args.l.all(x, args.l.exists(y, y == x + 1 || y == 0))", {"l": NUMBERS}),
    ("args.l.all(x, x in args.l)", {"l": NUMBERS}),
    ("args.l.filter(x, x >= 0).size() > 0", {"l": NUMBERS}),
    ("size(args.l.map(x, args.s + args.s)) > 0", {"l": list(range(1000)), "s": "a" * 100_000}),
    ("args.l.all(x, x.matches('[a-z]{3,40}'))", {"l": ["abcdef"] * 20_000}),
    ("(args.l + args.l).exists_one(x, [x].exists_one(y, y in args.l))", {"l": NUMBERS}),
    ("args.m.all(k, args.m.all(j, args.m[k] == args.m[j]))", {"m": {str(n): 1 for n in NUMBERS}}),
    ("args.s.matches('^(a+)+$')", {"s": "a" * 900_000 + "b"}),
    ("args.s.contains('ab') && (args.s + args.s + args.s) != args.s", {"s": "a" * 900_000}),
    ("args.l == args.l && args.l != [] && 7 in args.l", {"l": list(range(100_000))}),
]

IN_A_PROCESS = """
import json, resource, sys, time
from approvals.expressions import CannotEvaluate, Document, compiled
source, args = json.load(sys.stdin)
compiled("1 == 1").value(Document({}))
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
begun = time.process_time()
try:
    compiled(source).value(Document({"args": args}))
except CannotEvaluate as error:
    print(error, file=sys.stderr)
used = time.process_time() - begun
print(json.dumps([used, (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024]))
"""


@pytest.mark.parametrize(("source", "args"), HOSTILE, ids=[source for source, _ in HOSTILE])
def test_a_hostile_document_can_neither_hang_nor_fill_the_memory(source: str, args: Any) -> None:
    """In a process of its own, so that a document which could would not hang the tests."""
    found = subprocess.run(
        [sys.executable, "-c", IN_A_PROCESS],
        input=json.dumps([source, args]),
        cwd=BASE_DIR,
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    seconds, megabytes = json.loads(found.stdout)
    assert seconds < LONGEST_S
    assert megabytes < MORE_MEMORY_MB


def test_a_document_as_deep_as_the_door_lets_in_is_judged() -> None:
    deep: Any = 1
    for _ in range(63):
        deep = [deep]
    assert value("size(args.x) == 1 && args.x == args.x", x=deep) is True


def test_what_is_too_large_to_loop_over_asks() -> None:
    text = rule("args.l.all(x, x >= 0)")
    assert judge(written(text), question(args={"l": [1, 2, 3]})).kind == "allow"
    assert judge(written(text), question(args={"l": NUMBERS})).kind == "ask"
    with pytest.raises(CannotEvaluate, match="too large for a loop"):
        value("args.l.all(x, x >= 0)", l=NUMBERS)


@pytest.mark.parametrize(
    ("source", "loops"),
    [
        ("args.amount > 1", 0),
        ("args.l.all(x, x > 1)", 1),
        ("args.l.all(x, x > 1) && args.l.exists(x, x > 2)", 1),
        ("args.l.all(x, args.l.exists(y, y == x))", 2),
        ("args.l.map(x, x)", 2),
        ("args.l.map(x, x).all(y, y > 1)", 3),
        ("(args.l.map(x, x) + args.l).filter(y, y > 1)", 4),
        ("args.l.all(x, x == '.all(') || args.all == 1", 1),
        ("[args.l.all(x, x > 1), true].exists(y, y)", 2),
    ],
)
def test_loops_within_loops_are_counted(source: str, loops: int) -> None:
    assert compiled(source).loops == loops


def test_the_cost_is_a_bound_and_not_a_wish() -> None:
    """At the very edge of what is let through, the slowest shapes stay far below a second."""
    count = 1
    while _cost(count + 1) <= MAX_COST:
        count += 1
    begun = time.process_time()
    assert value("args.l.map(x, args.l).size() > 0", l=list(range(count))) is True
    assert time.process_time() - begun < LONGEST_S
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss > 0


def _cost(count: int) -> int:
    over = Document({"args": {"l": list(range(count))}, "saga": {"metadata": {}}})
    return over.size * over.values**2


def test_what_is_counted_is_a_number() -> None:
    limit = Limit("l", by="agent", per_s=60, max=5, over="ask", sum="args.amount")
    assert str(limit.amount({"amount": 0.1})) == "0.1"
    for bad in ("5", None, True, -1, -0.5, 1e300, [5]):
        with pytest.raises(CannotEvaluate):
            limit.amount({"amount": bad})
    with pytest.raises(CannotEvaluate, match="there is no 'amount'"):
        limit.amount({})
