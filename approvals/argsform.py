"""A form for the arguments of a tool: from its JSON Schema and a value, beside what it was.

Every part says its kind, and what comes back is read as that (approvals/argsread.py). What a form
cannot show safely, a text with characters that are not seen or that browsers change, is edited as
a JSON literal. What is `readOnly` comes back exactly as it was, however deep (case A12).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from approvals.argsschema import Facet, best_facet, facets
from approvals.argsvalues import ABSENT, MAX_PARTS, Typed, same, size_of
from ledger.jsontext import pointer
from ledger.templatetags.visible import is_plain

# Deeper than this is edited as JSON: nobody reads such a form.
MAX_DEPTH = 8
KINDS = {
    "text": "text",
    "integer": "whole number",
    "number": "number",
    "boolean": "yes or no",
    "null": "null",
    "enum": "one of",
    "object": "object",
    "list": "list",
    "json": "JSON",
    "absent": "left out",
}


@dataclass(slots=True)
class Part:
    """One line of the form. `was`: whether it had a value before, and `before` which."""

    pointer: str
    name: str
    depth: int
    kind: str
    kinds: Sequence[tuple[str, str]] = ()
    text: str = ""
    options: Sequence[tuple[str, str, bool]] = ()
    names: Sequence[str] = ()
    length: int = 0
    help: str = ""
    before: Any = ABSENT
    is_changed: bool = False
    is_item: bool = False
    fault: str = ""

    @property
    def had(self) -> bool:
        return self.before is not ABSENT

    @property
    def rows(self) -> int:
        return min(12, max(1, self.text.count("\n") + 1 + len(self.text) // 60))


@dataclass(slots=True)
class _Writer:
    """Writes the lines of a form, from the outside in."""

    schema: Mapping[str, Any]
    faults: Mapping[str, str]
    parts: list[Part] = field(default_factory=list)

    def write(
        self, value: Any, before: Any, path: tuple[Any, ...], node: Any, *, optional: bool
    ) -> None:
        found = facets(self.schema, node)
        facet = best_facet(found, value)
        kind = _kind_of(value, facet, len(path))
        part = Part(
            pointer=pointer(path),
            name=_name(path),
            depth=max(0, len(path) - 1),
            kind=kind,
            kinds=_choices(kind, found, optional),
            help=facet.help,
            before=before,
            is_changed=not same(value, before),
            is_item=bool(path) and isinstance(path[-1], int),
            fault=self.faults.get(pointer(path), ""),
        )
        self.parts.append(part)
        if kind == "object":
            self._object(value, before, path, facet, part)
        elif kind == "list":
            self._list(value, before, path, facet, part)
        elif kind == "enum":
            part.options = [(json.dumps(o), _said(o), same(o, value)) for o in facet.options]
        elif kind == "boolean":
            part.options = [(json.dumps(o), word, o is value) for o, word in _YES_NO]
        else:
            part.text = _text(value, kind)

    def _object(
        self, value: Any, before: Any, path: tuple[Any, ...], facet: Facet, part: Part
    ) -> None:
        inside: Mapping[str, Any] = value if isinstance(value, dict) else {}
        old: Mapping[str, Any] = before if isinstance(before, dict) else {}
        # In the order in which the request shows them: that of the canonical text.
        part.names = sorted({*facet.properties, *inside})
        for name in part.names:
            self.write(
                inside.get(name, ABSENT),
                old.get(name, ABSENT),
                (*path, name),
                facet.properties.get(name, facet.others),
                optional=name not in facet.required,
            )

    def _list(
        self, value: Any, before: Any, path: tuple[Any, ...], facet: Facet, part: Part
    ) -> None:
        inside: Sequence[Any] = value if isinstance(value, list) else ()
        old: Sequence[Any] = before if isinstance(before, list) else ()
        part.length = len(inside)
        for index, item in enumerate(inside):
            was = old[index] if index < len(old) else ABSENT
            self.write(item, was, (*path, index), facet.items, optional=False)


_YES_NO = ((True, "yes (true)"), (False, "no (false)"))


def form(
    schema: Mapping[str, Any],
    value: Any,
    before: Any,
    faults: Mapping[str, str] | None = None,
    *,
    as_json: bool = False,
) -> list[Part]:
    """The lines of a form that shows `value`, each beside what it was in `before`."""
    if as_json or isinstance(value, Typed) or size_of(value) > MAX_PARTS:
        told = (faults or {}).items()
        fault = "; ".join(f"{place or 'arguments'}: {why}" for place, why in told)
        text = _text(value, "json")
        return [Part("", "arguments", 0, "json", text=text, before=before, fault=fault)]
    writer = _Writer(schema, faults or {})
    writer.write(value, before, (), schema, optional=False)
    return writer.parts


def _kind_of(value: Any, facet: Facet, depth: int) -> str:
    if value is ABSENT:
        return "absent"
    if facet.read_only:
        return "keep"
    if isinstance(value, Typed):
        return value.kind
    if facet.options and any(same(option, value) for option in facet.options):
        return "enum"
    kind = facet.kind_of(value)
    if kind == "text" and not is_plain(value):
        return "json"
    if kind == "object" and not all(is_plain(n) and "\n" not in n for n in value):
        return "json"
    return "json" if kind in ("object", "list") and depth >= MAX_DEPTH else kind


def _choices(kind: str, found: Sequence[Facet], optional: bool) -> list[tuple[str, str]]:
    """What this part may be instead."""
    if kind == "keep" or (kind == "absent" and found[0].read_only):
        return []
    may = [kind, *(one for facet in found for one in facet.all_kinds())]
    if optional:
        may.append("absent")
    return [(one, KINDS[one]) for one in dict.fromkeys(may)]


def _text(value: Any, kind: str) -> str:
    if isinstance(value, Typed):
        return value.text
    if value is ABSENT or value is None:
        return ""
    if kind == "text":
        return str(value)
    indent = 2 if isinstance(value, dict | list) else None
    return json.dumps(_without_typed(value), indent=indent)


def _without_typed(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _without_typed(inner) for name, inner in value.items()}
    if isinstance(value, list):
        return [_without_typed(inner) for inner in value]
    return value.text if isinstance(value, Typed) else value


def _said(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _name(path: tuple[Any, ...]) -> str:
    if not path:
        return "arguments"
    return f"{path[-1] + 1}" if isinstance(path[-1], int) else str(path[-1])
