"""Reading the policy file: every fault at once, with its line; one fault and nothing starts."""

from __future__ import annotations

import os
import re
import tomllib
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from jsonschema import Draft202012Validator

from approvals import expressions
from approvals.limits import LONGEST_S, Limit
from approvals.policy import DEFAULT, ONE_APPROVER, Policy, Rule, Terms
from approvals.policyschema import FILE, TERMS
from approvals.quorum import Need
from ledger.states import BlastRadius, Direction, Tier
from ledger.tools.faults import Fault
from ledger.tools.lines import Lines, syntax_line
from ledger.tools.shapes import Place, odd_values, shape_faults

# What a condition may look at, and what is below it; None: as the agent sent it.
VARIABLES: expressions.Names = {
    "args": None,
    "step": frozenset({"id", "step_id", "position", "direction"}),
    "saga": frozenset({"id", "task_id", "name", "metadata"}),
    "tool": frozenset({"name", "version", "tier", "blast_radius"}),
    "agent": frozenset({"name"}),
}
_SHAPE = Draft202012Validator(FILE)
_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}
_TIME = re.compile(r"(\d{1,9})([smhd])")
# In seconds, at least and at most. A question open for longer than a month has been forgotten.
_BOUNDS = {
    "expires": (1, 30 * 86400),
    "remind": (60, 30 * 86400),
    "delay": (1, 86400),
    "per": (1, LONGEST_S),
}

Found = Iterator[tuple[Place, str]]


class InvalidPolicy(Exception):
    """The policy cannot be used as written; the text has one line for each fault."""

    def __init__(self, faults: Sequence[Fault]) -> None:
        super().__init__("\n".join(str(fault) for fault in faults))
        self.faults = faults


def read(path: str | os.PathLike[str]) -> Policy:
    """The policy of a file. Raises InvalidPolicy with every fault."""
    name = os.fspath(path)
    try:
        text = Path(path).read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidPolicy([Fault(name, f"cannot be read: {error}")]) from None
    return parsed(text, name)


def parsed(text: str, name: str) -> Policy:
    """The policy in `text`, with the default rules behind it; `name` is what faults call it."""
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise InvalidPolicy([Fault(f"{name}:{syntax_line(error, text)}", str(error))]) from None
    faults = [*odd_values(document)] or [
        *shape_faults(document, _SHAPE, lambda path: _place(document, path)),
        *_meaning_faults(document),
    ]
    if faults:
        lines = Lines(text)
        told = sorted({(lines.of(path), reason) for path, reason in faults})
        raise InvalidPolicy([Fault(f"{name}:{line}", reason) for line, reason in told])
    return Policy(
        rules=(*(_rule(written) for written in document.get("rule", [])), *DEFAULT.rules),
        terms=ONE_APPROVER,
        limits=tuple(_limit(written) for written in document.get("limit", [])),
        file=os.path.abspath(name),
    )


def _place(document: dict[str, Any], path: Place) -> str:
    """`rule "large refunds": need.0.count`, as people look for it."""
    if len(path) < 2:
        return ".".join(map(str, path)) or "the file"
    table, index, *rest = path
    written = document[str(table)][index]
    named = written.get("name") if isinstance(written, dict) else None
    known = f'{table} "{named}"' if isinstance(named, str) else f"{table} {int(index) + 1}"
    return ": ".join(filter(None, (known, ".".join(map(str, rest)))))


def _tables(document: dict[str, Any], table: str) -> list[tuple[Place, dict[str, Any]]]:
    """The tables whose shape allows to judge what they mean."""
    written = document.get(table, [])
    listed = enumerate(written) if isinstance(written, list) else ()
    return [((table, at), found) for at, found in listed if isinstance(found, dict)]


def _meaning_faults(document: dict[str, Any]) -> Found:
    for table, check in (("rule", _rule_faults), ("limit", _limit_faults)):
        tables = _tables(document, table)
        names = Counter(str(written.get("name")) for _, written in tables)
        for place, written in tables:
            told = f"{_place(document, place)}: "
            if names[str(written.get("name"))] > 1 and written.get("name"):
                yield (*place, "name"), f"{told}there are two of this name"
            for below, reason in (*_time_faults(written), *check(written)):
                yield (*place, *below), told + reason


def _time_faults(written: dict[str, Any]) -> Found:
    for key, (least, most) in _BOUNDS.items():
        text = written.get(key)
        if not isinstance(text, str):
            continue
        seconds = _seconds(text)
        if seconds is None:
            yield (key,), f'{key}: write a time such as "90s", "30m", "4h" or "1d"'
        elif not least <= seconds <= most:
            yield (key,), f"{key}: must be from {least} s to {most} s"


def _seconds(text: str) -> int | None:
    parts = _TIME.findall(text)
    if not parts or "".join(map("".join, parts)) != text:
        return None
    return sum(int(number) * _UNITS[unit] for number, unit in parts)


def _rule_faults(written: dict[str, Any]) -> Found:
    verdict = written.get("verdict")
    if isinstance(source := written.get("when"), str):
        yield from ((("when",), f"when: {why}") for why in expressions.faults(source, VARIABLES))
    if verdict in {"allow", "deny"}:
        for key in sorted(TERMS.keys() & written.keys()):
            yield (key,), f"{key}: only a rule that asks has it, and this one says {verdict}"
    if verdict == "deny" and written.get("direction") in {"compensate", "correct"}:
        yield ("verdict",), "an undo can be made to wait for people, but never be denied"
    yield from _need_faults(written.get("need"))
    expires, remind = (_seconds(str(written.get(key))) for key in ("expires", "remind"))
    if remind is not None and remind >= (expires or ONE_APPROVER.expires_s):
        yield ("remind",), "remind: the question ends before anybody is reminded"


def _need_faults(need: Any) -> Found:
    if not isinstance(need, list):
        return
    groups = [one.get("group") for one in need if isinstance(one, dict)]
    for group in sorted({name for name in groups if isinstance(name, str)}):
        if groups.count(group) > 1:
            yield ("need",), f"need: the group {group} is there twice; say how many in one count"


def _limit_faults(written: dict[str, Any]) -> Found:
    if isinstance(source := written.get("sum"), str):
        known: expressions.Names = {"args": None}
        yield from ((("sum",), f"sum: {why}") for why in expressions.faults(source, known))
    if ("sum" in written) == ("count" in written):
        yield (), "say either what it sums (sum) or that it counts (count = true)"


def _rule(written: dict[str, Any]) -> Rule:
    tier, direction = written.get("tier"), written.get("direction")
    return Rule(
        name=written["name"],
        verdict=written["verdict"],
        tool=written.get("tool", "*"),
        agent=written.get("agent", "*"),
        tiers=frozenset({Tier(tier)} if tier else ()),
        directions=frozenset({Direction(direction)} if direction else ()),
        blast_radius=BlastRadius(written.get("blast_radius", BlastRadius.LOW)),
        when=written.get("when", ""),
        terms=_terms(written) if written["verdict"] == "ask" else None,
    )


def _terms(written: dict[str, Any]) -> Terms:
    need = tuple(Need(one["group"], one["count"]) for one in written.get("need", ()))
    return Terms(
        need=need or ONE_APPROVER.need,
        expires_s=_seconds(written.get("expires", "")) or ONE_APPROVER.expires_s,
        require_reason=written.get("require_reason", False),
        escalate_to=written.get("escalate_to", ""),
        remind_s=_seconds(written.get("remind", "")) or 0,
        delay_s=_seconds(written.get("delay", "")) or 0,
    )


def _limit(written: dict[str, Any]) -> Limit:
    return Limit(
        name=written["name"],
        by=written["by"],
        per_s=_seconds(written["per"]) or 0,
        max=written["max"],
        over=written["over"],
        tool=written.get("tool", "*"),
        agent=written.get("agent", "*"),
        sum=written.get("sum", ""),
    )
