"""What is wrong with the shape of a TOML file: the place and the reason of every fault."""

from __future__ import annotations

import difflib
import math
from collections.abc import Callable, Iterator
from typing import Any

from jsonschema import Draft202012Validator
from jsonschema.exceptions import ValidationError

from ledger.jsontext import MAX_INTEGER, UNSTORABLE

Place = tuple[str | int, ...]


def odd_values(node: Any, path: Place = ()) -> Iterator[tuple[Place, str]]:
    """TOML has values that JSON, and so a snapshot, has not."""
    if isinstance(node, dict | list):
        members = node.items() if isinstance(node, dict) else enumerate(node)
        for name, child in members:
            yield from odd_values(child, (*path, name))
    elif isinstance(node, str) and UNSTORABLE.search(node):
        yield path, f"{path[-1]}: a NUL character cannot be stored"
    elif isinstance(node, float) and not math.isfinite(node):
        yield path, f"{path[-1]}: not a finite number"
    elif isinstance(node, int) and abs(node) > MAX_INTEGER:
        yield path, f"{path[-1]}: an integer beyond 2^53"
    elif not isinstance(node, str | int | float):
        yield path, f"{path[-1]}: write dates and times as text, in quotes"


def place_in_file(path: Place) -> str:
    """A path as people read it, without the table that everything is in."""
    return ".".join(map(str, path[1:])) or "the file"


def shape_faults(
    document: dict[str, Any],
    shape: Draft202012Validator,
    place_of: Callable[[Place], str] = place_in_file,
) -> Iterator[tuple[Place, str]]:
    """Where the document breaks its schema. Reasons name no value of a wrong kind."""
    for error in shape.iter_errors(document):
        path = tuple(error.absolute_path)
        where = place_of(path)
        if error.validator == "additionalProperties":
            known = list(error.schema.get("properties", {}))
            for name in sorted(error.instance.keys() - set(known)):
                yield (*path, name), f"{where}: unknown field {name!r}{_meant(name, known)}"
        elif error.validator == "propertyNames":
            yield (*path, error.instance), f"{where}: {_reason(error)}"
        else:
            yield path, f"{where}: {_reason(error)}"


def _reason(error: ValidationError) -> str:
    if error.validator == "type":  # without the value: it may be a secret in the wrong place
        kinds = error.validator_value
        return f"must be {kinds if isinstance(kinds, str) else ' or '.join(map(str, kinds))}"  # type: ignore[arg-type]
    message = str(error.message)
    return message if len(message) <= 200 else message[:200] + "…"


def _meant(name: str, known: list[str]) -> str:
    close = difflib.get_close_matches(name, known, n=1)
    return f"; did you mean {close[0]!r}?" if close else f"; known are {', '.join(known)}"
