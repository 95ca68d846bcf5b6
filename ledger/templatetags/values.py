"""JSON values for people: typed rows, nothing cut, and raw text one click away."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django import template
from django.utils import timezone
from django.utils.safestring import SafeString

from ledger.templatetags.console import span
from ledger.templatetags.visible import show

register = template.Library()

# A value longer than this is folded, with its size said; Approve then asks that it was opened.
FOLD_ABOVE = 4_096
_DEEPEST_INDENT = 4


@dataclass(frozen=True, slots=True)
class ValueRow:
    """One line of the arguments table. `folded` is the size of a value that is not open."""

    path: str
    depth: int
    kind: str
    text: SafeString
    folded: int = 0

    @property
    def indent(self) -> int:
        return min(self.depth, _DEEPEST_INDENT)


def _kind(value: Any) -> str:
    if value is None:
        return "null"
    names = {bool: "yes or no", int: "number", float: "number", str: "text", list: "list"}
    return names.get(type(value), "object")


def _said(value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, dict | list):
        return "empty" if not value else f"{len(value)} inside"
    return json.dumps(value)


def value_rows(value: Any, path: str = "", depth: int = 0) -> Iterator[ValueRow]:
    """Every key of a JSON object, in its order, down to the last leaf."""
    pairs = value.items() if isinstance(value, dict) else enumerate(value, start=1)
    for key, inner in pairs:
        here = f"{path}.{key}" if path else str(key)
        said = _said(inner)
        size = len(said.encode("utf-8", "surrogatepass"))
        folded = size if size > FOLD_ABOVE else 0
        text = show(said, keep_breaks=True) if said else SafeString("<i>empty text</i>")
        yield ValueRow(here, depth, _kind(inner), text, folded)
        if isinstance(inner, dict | list):
            yield from value_rows(inner, here, depth + 1)


def folded_paths(args: Any) -> list[str]:
    """The parts of the arguments that a person must open before a yes counts."""
    return [row.path for row in value_rows(args) if row.folded]


@register.inclusion_tag("ledger/arguments.html")
def arguments(args_text: str, confirm_in: str = "") -> dict[str, Any]:
    """The typed table of a step's arguments.

    `confirm_in` is the id of a form: then every folded part holds a box that must be
    ticked in it, and the box can only be reached by opening the part.
    """
    args = json.loads(args_text)
    return {
        "rows": list(value_rows(args)),
        "raw": pretty(args),
        "size": len(args_text.encode("utf-8", "surrogatepass")),
        "confirm_in": confirm_in,
    }


@register.filter
def pretty(value: Any) -> str:
    """Indented JSON of a value or of JSON text; other text as it is."""
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except ValueError:
            return str(value)
    return "" if value is None else json.dumps(value, indent=2, ensure_ascii=False)


@register.filter
def took(attempt: Any) -> str:
    """How long an attempt has taken, or takes so far."""
    end: datetime = attempt.ended_at or timezone.now()
    return span(end - attempt.started_at)
