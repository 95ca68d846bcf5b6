"""Values of a form in the making: what is left out, what is typed and not yet a value. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from approvals.argsschema import best_facet, facets

# More parts than this, or more items in a list, are edited as JSON: nobody reads such a form.
MAX_PARTS = 250


class _Absent:
    """No value at all, which is not null."""


ABSENT = _Absent()


@dataclass(frozen=True, slots=True)
class Typed:
    """What somebody typed that is no value of its kind yet."""

    kind: str
    text: str


def add_to(value: Any, place: str, schema: Mapping[str, Any]) -> Any:
    """The value with one more item, still empty, in the list at this pointer."""
    target = _at(value, place)
    if isinstance(target, list) and len(target) < MAX_PARTS:
        node: Any = schema
        for name in _path(place):
            facet = best_facet(facets(schema, node), {} if not name.isdigit() else [])
            node = facet.properties.get(name, facet.items if name.isdigit() else facet.others)
        items = best_facet(facets(schema, node), target).items
        target.append(_blank(schema, items))
    return value


def remove_from(value: Any, place: str) -> Any:
    """The value without the item at this pointer."""
    around, _, index = place.rpartition("/")
    target = _at(value, around)
    if isinstance(target, list) and index.isdigit() and int(index) < len(target):
        del target[int(index)]
    return value


def same(one: Any, other: Any) -> bool:
    """Whether two values are the same JSON: true is not 1, and 1 is 1.0."""
    if isinstance(one, Typed) or isinstance(other, Typed) or ABSENT in (one, other):
        return one is other
    return type(one) is type(other) and bool(one == other) and _plain(one) == _plain(other)


def _plain(value: Any) -> str:
    return json.dumps(value, sort_keys=True)


def _blank(schema: Mapping[str, Any], node: Any) -> Any:
    facet = facets(schema, node)[0]
    if facet.default is not None:
        return json.loads(json.dumps(facet.default))
    if facet.options:
        return facet.options[0]
    kind = next(iter(facet.kinds), "text")
    if kind == "object":
        wanted = (n for n in facet.properties if n in facet.required)
        return {name: _blank(schema, facet.properties[name]) for name in wanted}
    empty = {"text": "", "list": [], "boolean": False, "null": None}
    return empty[kind] if kind in empty else Typed(kind, "")


def size_of(value: Any) -> int:
    inside: Iterable[Any] = ()
    if isinstance(value, dict):
        inside = value.values()
    elif isinstance(value, list):
        inside = value
    return 1 + sum(size_of(one) for one in inside)


def _path(place: str) -> Iterator[str]:
    return (part.replace("~1", "/").replace("~0", "~") for part in place.split("/")[1:])


def _at(value: Any, place: str) -> Any:
    for name in _path(place):
        if isinstance(value, dict) and name in value:
            value = value[name]
        elif isinstance(value, list) and name.isdigit() and int(name) < len(value):
            value = value[int(name)]
        else:
            return None
    return value
