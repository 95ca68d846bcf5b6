"""The table at the end: what was asked, what the targets say, what should be.

Both sides of a row are sentences that are built from numbers; the row is right when they are
the same sentence.
"""

from __future__ import annotations

import textwrap
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any

from saga_console.demo import faultproxy
from saga_console.demo.targets import Addresses
from saga_console.demo.truth import Truth

COLUMNS = (("asked", 26), ("effects at the target", 31), ("expected", 31), ("ok", 3))


@dataclass(frozen=True, slots=True)
class Row:
    asked: str
    effects: str
    expected: str

    @property
    def ok(self) -> bool:
        return self.effects == self.expected


def row(at: Addresses, story: str, facts: dict[str, Any]) -> Row:
    """One story's row; without facts the agent gave up, which is never right."""
    build = {"refund": refund, "provision": provision, "ambiguous": ambiguous, "mail": mail}[story]
    if not facts or facts.get("asked", True) is None:
        return Row(story, "the agent gave up", "the story's end")
    return build(at, Truth(at), facts)


def refund(at: Addresses, truth: Truth, facts: dict[str, Any]) -> Row:
    return Row(
        f"refund: one refund, asked {facts['asked']} times",
        f"{money(truth.refunds(facts['payment']))}; order {truth.order(facts['order'])}",
        f"1 refund, {euros(facts['amount'])} in all; order cancelled",
    )


def provision(at: Addresses, truth: Truth, facts: dict[str, Any]) -> Row:
    domain, name = facts["domain"], facts["name"]
    left = [
        f"{len(truth.records(domain))} records",
        f"{len(truth.zones(domain))} zones",
        f"{len(truth.databases(name))} databases",
        f"instances: {', '.join(truth.instances(name)) or 'none'}",
        f"undone: {', '.join(facts['undone'])}",
    ]
    return Row(
        "provision: an instance, a zone, a record, and a database that AWS refuses",
        "; ".join(left),
        "0 records; 0 zones; 0 databases; instances: terminated; undone: record, zone, instance",
    )


def ambiguous(at: Addresses, truth: Truth, facts: dict[str, Any]) -> Row:
    refunds = truth.refunds(facts["payment"])
    found = [one["id"] for one in refunds] == [facts["found"]]
    cuts = [
        cut for cut in faultproxy.cuts(at.proxy_url) if refunds and refunds[0]["id"] in cut.body
    ]
    return Row(
        "ambiguous: one refund, its answer cut off",
        f"{money(refunds)}; {len(cuts)} answer cut off; the step knows "
        + ("that refund" if found else f"{facts['found']}"),
        f"1 refund, {euros(4200)} in all; 1 answer cut off; the step knows that refund",
    )


def mail(at: Addresses, truth: Truth, facts: dict[str, Any]) -> Row:
    mails = truth.mails(facts["to"])
    first = mails[0]["Message-ID"] if mails else None
    apologies = [one for one in mails if one["In-Reply-To"] == first]
    return Row(
        "mail: a confirmation, then a card that is declined",
        f"{len(mails) - len(apologies)} confirmation, then {len(apologies)} apology for it; "
        f"{len(truth.paid(facts['order']))} payments; order {truth.order(facts['order'])}",
        "1 confirmation, then 1 apology for it; 0 payments; order placed",
    )


def money(refunds: list[Any]) -> str:
    """How many refunds, and of how much together."""
    count = f"{len(refunds)} refund" + ("" if len(refunds) == 1 else "s")
    return f"{count}, {euros(sum(one['amount'] for one in refunds))} in all"


def euros(cents: int) -> str:
    return f"{cents // 100}.{cents % 100:02} EUR"


def render(rows: list[Row]) -> str:
    """The table as text, cells wrapped to their columns."""
    rule = "──".join("─" * width for _, width in COLUMNS)
    lines = [_line([name for name, _ in COLUMNS]), rule]
    for one in rows:
        texts = (one.asked, one.effects, one.expected, "yes" if one.ok else "NO")
        cells = [
            textwrap.wrap(text, width) for text, (_, width) in zip(texts, COLUMNS, strict=True)
        ]
        lines += [_line(list(parts)) for parts in zip_longest(*cells, fillvalue="")]
        lines.append(rule)
    right = sum(one.ok for one in rows)
    lines.append(f"{right} of {len(rows)} rows are right.")
    return "\n".join(lines)


def _line(cells: list[str]) -> str:
    widths = [width for _, width in COLUMNS]
    return "  ".join(cell.ljust(width) for cell, width in zip(cells, widths, strict=True)).rstrip()
