"""JSON values for people: typed rows, nothing cut, and raw text one click away."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django import template
from django.utils import timezone
from django.utils.safestring import SafeString

from ledger.masking import redact
from ledger.queries import shown
from ledger.spoken import spoken, telling
from ledger.templatetags.console import measured
from ledger.templatetags.visible import show

register = template.Library()

# A value longer than this is folded, with its size said; Approve then asks that it was opened.
FOLD_ABOVE = 4_096
_DEEPEST_INDENT = 4
# Five digits and more are read in groups; a year or a port is not.
_GROUP_FROM = 10_000


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


def _shown(value: Any) -> SafeString:
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) >= _GROUP_FROM:
        return _grouped(value)
    return show(_said(value), keep_breaks=True)


def _grouped(number: int) -> SafeString:
    """Thousands set apart by space alone: what is copied is the number as it runs."""
    first, *rest = f"{number:,}".split(",")
    return SafeString(first + "".join(f'<span class="thousand">{group}</span>' for group in rest))


def value_rows(value: Any, path: str = "", depth: int = 0) -> Iterator[ValueRow]:
    """Every key of a JSON object, in its order, down to the last leaf."""
    pairs = value.items() if isinstance(value, dict) else enumerate(value, start=1)
    for key, inner in pairs:
        here = f"{path}.{key}" if path else str(key)
        said = _said(inner)
        size = len(said.encode("utf-8", "surrogatepass"))
        folded = size if size > FOLD_ABOVE else 0
        text = _shown(inner) if said else SafeString("<i>empty text</i>")
        yield ValueRow(here, depth, _kind(inner), text, folded)
        if isinstance(inner, dict | list):
            yield from value_rows(inner, here, depth + 1)


def folded_paths(args: Any) -> list[str]:
    """The parts of the arguments that a person must open before a yes counts."""
    return [row.path for row in value_rows(args) if row.folded]


@register.filter
def as_written(value: Any) -> SafeString:
    """One value in full: text as it is, anything else as JSON with its groups of digits."""
    if isinstance(value, dict | list):
        return pretty(value)
    return _shown(value) if _said(value) else SafeString("<i>empty text</i>")


def _titles(schema: Any, path: str = "") -> Iterator[tuple[str, str]]:
    """The titles that a JSON Schema gives to members of objects, by their paths."""
    members = schema.get("properties") if isinstance(schema, Mapping) else None
    for name, inner in members.items() if isinstance(members, Mapping) else ():
        here = f"{path}.{name}" if path else name
        if isinstance(inner, Mapping) and isinstance(inner.get("title"), str):
            yield here, inner["title"]
        yield from _titles(inner, here)


@register.inclusion_tag("ledger/arguments.html")
def arguments(
    args_text: str, confirm_in: str = "", definition: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """The typed table of a step's arguments.

    `confirm_in` is the id of a form: then every folded part holds a box that must be
    ticked in it, and the box can only be reached by opening the part. `definition` is the
    tool's: its schema's titles say what a name means ("Amount in cents").
    """
    args = json.loads(args_text)
    titles = dict(_titles((definition or {}).get("args")))
    return {
        "rows": [(row, titles.get(row.path, "")) for row in value_rows(args)],
        "args": args,
        "size": len(args_text.encode("utf-8", "surrogatepass")),
        "confirm_in": confirm_in,
    }


@register.filter
def pretty(value: Any) -> SafeString:
    """A value, or JSON text, as indented JSON without its secrets; other text as it is."""
    if value is None:
        return SafeString("")
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except ValueError:
            return show(value, keep_breaks=True)
    return written(redact(value))


@register.filter
def written(value: Any) -> SafeString:
    """A JSON value as indented JSON, whatever its members are called: a schema for example.

    JSON escapes the breaks inside its strings, so those of the indentation need no sign.
    """
    lines = json.dumps(value, indent=2, ensure_ascii=False).split("\n")
    return SafeString("\n".join(show(line) for line in lines))


@register.filter
def shown_payload(entry: Any) -> SafeString:
    """What an entry says, as indented JSON, masked by the schema of the tool that it names."""
    told = json.loads(entry.payload)
    return written(shown.payload_of(told, entry.saga_id, entry.step_id))


@register.filter
def shown_args(row: Any) -> str:
    """The text of what a step's row runs, without what its tool calls secret."""
    digest = "" if row.step.alternative else row.step.tool_version_id
    args = shown.args_of(json.loads(row.args_text), row.tool, digest)
    return json.dumps(args, ensure_ascii=False)


@register.filter
def shown_text(args_text: str, tool: str) -> str:
    """The same of arguments whose version of the tool is not kept with them."""
    return json.dumps(shown.args_of(json.loads(args_text), tool), ensure_ascii=False)


@register.inclusion_tag("ledger/said.html")
def said(told: Any, *fold: Any, prose: bool = False) -> dict[str, Any]:
    """What was said, in words when the record has any, with its JSON folded; else as JSON.

    `told` is a text, or what the engine keeps of an outcome or an error. `fold` makes the id of
    the folded part, by which a poll leaves it open; `prose` when a sentence of ours is around it.
    """
    text = telling(told)
    if text is None:
        is_done = isinstance(told, dict) and told.get("outcome") == "done"
        return {"words": pretty(told.get("result") if is_done else told)}
    in_words = spoken(text)
    words = show(in_words.words, keep_breaks=True)
    return {"words": words, "raw": in_words.raw, "fold": _id(fold), "is_prose": prose}


def _id(parts: Iterable[Any]) -> str:
    return "-".join(str(part) for part in parts)


_GIST_PARTS = 3
_GIST_LENGTH = 40


@register.filter
def gist(args: Any) -> list[tuple[str, SafeString]]:
    """The first few plain arguments, for a line in a list. The request itself shows all."""
    plain = [
        (str(key), value)
        for key, value in (args.items() if isinstance(args, dict) else ())
        if value is not None and not isinstance(value, dict | list)
    ]
    plain = [(key, value) for key, value in plain if len(_said(value)) <= _GIST_LENGTH]
    return [(key, _shown(value)) for key, value in plain[:_GIST_PARTS]]


@register.filter
def took(attempt: Any) -> str:
    """How long an attempt has taken, or takes so far."""
    end: datetime = attempt.ended_at or timezone.now()
    return measured(end - attempt.started_at)


@register.filter
def reason_in(payload: str) -> str:
    """What a person gave as the reason in an entry; '' when the entry has none."""
    told = json.loads(payload)
    return str(told.get("reason") or "") if isinstance(told, dict) else ""
