"""What a form needs to know of a JSON Schema: kinds, choices, and what is inside. Pure.

It reads the plain parts of a schema, `$ref`, `anyOf`, `oneOf` and `allOf`. It only offers: the
tool's whole schema checks what was typed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ledger.tools.schemas import resolved

_KIND = {
    "string": "text",
    "integer": "integer",
    "number": "number",
    "boolean": "boolean",
    "null": "null",
    "object": "object",
    "array": "list",
}
_EVERY = tuple(kind for name, kind in _KIND.items() if name != "integer")
_MAX_DEPTH = 16
_SHOWN = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf", "format")


@dataclass(frozen=True, slots=True)
class Facet:
    """One way in which a schema lets a value be."""

    kinds: tuple[str, ...]
    options: Sequence[Any] = ()
    properties: Mapping[str, Any] = field(default_factory=dict)
    required: frozenset[str] = frozenset()
    others: Any = None
    items: Any = None
    default: Any = None
    read_only: bool = False
    help: str = ""

    def all_kinds(self) -> tuple[str, ...]:
        return ("enum",) if self.options else self.kinds

    def kind_of(self, value: Any) -> str:
        """How this value is edited: a whole number is one only where nothing else is allowed."""
        if value is None:
            return "null"
        if isinstance(value, int | float) and not isinstance(value, bool):
            whole = isinstance(value, int) and "integer" in self.kinds
            return "integer" if whole and "number" not in self.kinds else "number"
        return {bool: "boolean", str: "text", list: "list", dict: "object"}[type(value)]


def facets(schema: Any, node: Any) -> list[Facet]:
    """Every way that `node` of `schema` allows, the first choice first; at least one."""
    return [_facet(plain) for plain in _plain(schema, node, 0)]


def best_facet(found: Sequence[Facet], value: Any) -> Facet:
    """The one that this value is of, else the first."""
    for facet in found:
        if facet.options and any(_same(option, value) for option in facet.options):
            return facet
    fitting = [f for f in found if not f.options and _fits(f, value)]
    if isinstance(value, dict):
        fitting.sort(key=lambda facet: -len(facet.properties.keys() & value.keys()))
    return fitting[0] if fitting else found[0]


def _fits(facet: Facet, value: Any) -> bool:
    try:
        return facet.kind_of(value) in facet.kinds
    except KeyError:  # no value at all, or not one yet
        return False


def _same(one: Any, other: Any) -> bool:
    return type(one) is type(other) and bool(one == other)


def _plain(schema: Any, node: Any, depth: int) -> Iterator[dict[str, Any]]:
    """The schema without references and alternatives: one for each way."""
    if not isinstance(node, dict) or depth > _MAX_DEPTH:
        yield {}
        return
    own = {k: v for k, v in node.items() if k not in ("$ref", "allOf", "anyOf", "oneOf")}
    wholes = [resolved(schema, node["$ref"])] if "$ref" in node else []
    wholes += node.get("allOf", ())
    bases: list[dict[str, Any]] = [own]
    for whole in wholes:
        parts = list(_plain(schema, whole, depth + 1))
        bases = [_merged(part, base) for base in bases for part in parts]
    ways = [*node.get("anyOf", ()), *node.get("oneOf", ())]
    if not ways:
        yield from bases
        return
    for way in ways:
        for part in _plain(schema, way, depth + 1):
            yield from (_merged(part, base) for base in bases)


def _merged(part: dict[str, Any], base: dict[str, Any]) -> dict[str, Any]:
    both = {**part, **base}
    both["properties"] = {**part.get("properties", {}), **base.get("properties", {})}
    both["required"] = [*part.get("required", ()), *base.get("required", ())]
    return both


def _facet(plain: Mapping[str, Any]) -> Facet:
    written = plain.get("type", ())
    types = (written,) if isinstance(written, str) else tuple(written)
    options = [plain["const"]] if "const" in plain else list(plain.get("enum", ()))
    if not types and plain.get("properties"):
        types = ("object",)
    others = plain.get("additionalProperties")
    return Facet(
        kinds=tuple(_KIND[name] for name in types if name in _KIND) or _EVERY,
        options=options,
        properties=plain.get("properties", {}),
        required=frozenset(plain.get("required", ())),
        others=others if isinstance(others, dict) else None,
        items=plain.get("items"),
        default=plain.get("default"),
        read_only=plain.get("readOnly") is True,
        help=_help(plain),
    )


def _help(plain: Mapping[str, Any]) -> str:
    told = [str(plain["description"])] if plain.get("description") else []
    told += [f"{name} {plain[name]}" for name in _SHOWN if name in plain]
    return "; ".join(told)
