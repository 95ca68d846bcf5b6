"""JSON Schema (2020-12) of args and results: checked when loaded, defaults filled, faults named."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from itertools import islice
from typing import Any

from jsonschema import Draft202012Validator
from jsonschema.exceptions import SchemaError, ValidationError
from referencing import Registry

from ledger.errors import InvalidArgs
from ledger.jsontext import pointer
from ledger.tools.faults import DefinitionError

DIALECT = "https://json-schema.org/draft/2020-12/schema"
MAX_FAULTS = 20
# Where args stand in whatever is sent with them: the place of a fault begins with it.
ARGS = "/args"
MAX_FAULT_CHARS = 200
# Keywords through which a schema can name properties that `properties` beside it does not.
_ELSEWHERE = frozenset({"$ref", "$dynamicRef", "allOf", "anyOf", "oneOf", "if", "dependentSchemas"})


class Schema:
    """A checked schema, compiled once. It never fetches anything: only local `$ref` resolve."""

    def __init__(self, schema: dict[str, Any]) -> None:
        check_schema(schema)
        self.schema = schema
        self._validator = Draft202012Validator(schema, registry=Registry())

    def __repr__(self) -> str:
        return f"Schema({self.schema!r})"

    def faults(self, value: Any) -> list[dict[str, str]]:
        """At most 20 faults of `value`, each `{"pointer", "detail"}`; empty when it fits."""
        found = (fault for error in self._validator.iter_errors(value) for fault in _told(error))
        return list(islice(found, MAX_FAULTS))

    def filled(self, args: dict[str, Any]) -> dict[str, Any]:
        """A copy of `args` in which every absent property has its schema's default."""
        filled = copy.deepcopy(args)
        self._fill(self.schema, filled, 0)
        return filled

    def _fill(self, node: Any, value: Any, depth: int) -> None:
        if not isinstance(node, dict) or depth > 64:  # a recursive $ref ends with the value
            return
        for part in (*self._referred(node), *node.get("allOf", ())):
            self._fill(part, value, depth + 1)
        if isinstance(value, dict):
            for name, child in node.get("properties", {}).items():
                if name not in value and isinstance(child, dict) and "default" in child:
                    value[name] = copy.deepcopy(child["default"])
                if name in value:
                    self._fill(child, value[name], depth + 1)
        elif isinstance(value, list):
            for item in value:
                self._fill(node.get("items"), item, depth + 1)

    def _referred(self, node: dict[str, Any]) -> Iterator[Any]:
        if "$ref" in node:
            yield resolved(self.schema, node["$ref"])


def closed(schema: dict[str, Any]) -> dict[str, Any]:
    """The schema of args, refusing unknown top-level fields when it does not say.

    An agent's misspelt argument must not be dropped in silence
    (docs/decisions/0018-jsonschema-for-args-and-the-tools-file.md).
    """
    if schema.get("type", "object") != "object":
        raise DefinitionError('args are always an object: type must be "object"', ("type",))
    answered = {"additionalProperties", "unevaluatedProperties"} & schema.keys()
    whole = {**schema, "type": "object"}
    if answered:
        return whole
    word = "unevaluatedProperties" if _ELSEWHERE & schema.keys() else "additionalProperties"
    return {**whole, word: False}


def check_schema(schema: dict[str, Any]) -> None:
    """Raise DefinitionError, with the path, unless this is a usable 2020-12 schema."""
    try:
        Draft202012Validator.check_schema(schema)
    except SchemaError as error:
        raise DefinitionError(
            f"not a JSON Schema (2020-12): {_short(error.message)}", tuple(error.absolute_path)
        ) from None
    if schema.get("$schema", DIALECT) != DIALECT:
        raise DefinitionError(f"only {DIALECT} is read", ("$schema",))
    for path, reference in _references(schema, ()):
        if _is_loop(schema, resolved(schema, reference, path), frozenset()):
            raise DefinitionError(f"{reference!r} leads to itself without going deeper", path)


def _is_loop(schema: Any, node: Any, above: frozenset[int]) -> bool:
    # Keywords that apply to the same value: a circle of them would never end.
    if not isinstance(node, dict):
        return False
    if id(node) in above:
        return True
    parts = [part for word in ("allOf", "anyOf", "oneOf") for part in node.get(word, ())]
    parts += [node[word] for word in ("not", "if", "then", "else") if word in node]
    parts += node.get("dependentSchemas", {}).values()
    parts += [resolved(schema, node[word]) for word in ("$ref", "$dynamicRef") if word in node]
    return any(_is_loop(schema, part, above | {id(node)}) for part in parts)


def _references(
    node: Any, path: tuple[str | int, ...]
) -> Iterator[tuple[tuple[str | int, ...], Any]]:
    if isinstance(node, dict):
        for name, child in node.items():
            if name in ("$ref", "$dynamicRef") and isinstance(child, str):
                yield (*path, name), child
            elif name not in ("const", "default", "enum", "examples"):
                yield from _references(child, (*path, name))
    elif isinstance(node, list):
        for index, child in enumerate(node):
            yield from _references(child, (*path, index))


def resolved(schema: Any, reference: str, path: tuple[str | int, ...] = ()) -> Any:
    """The part of `schema` that a local reference such as `#/$defs/money` names."""
    if reference != "#" and not reference.startswith("#/"):
        raise DefinitionError(f"{reference!r} is not local; only #/… references are read", path)
    node = schema
    for part in reference.split("/")[1:]:
        name = part.replace("~1", "/").replace("~0", "~")
        if not isinstance(node, dict) or name not in node:
            raise DefinitionError(f"{reference!r} leads nowhere", path)
        node = node[name]
    return node


def _told(error: ValidationError) -> Iterator[dict[str, str]]:
    path = list(error.absolute_path)
    word = error.validator
    # The keyword decides what these are, which no type can say.
    value: Any = error.validator_value
    instance: Any = error.instance
    schema: Any = error.schema
    if word == "required":
        # One missing name an error, and the message begins with it.
        named = [name for name in value if error.message.startswith(repr(name))]
        yield _fault([*path, *named[:1]], "is required")
    elif word in ("additionalProperties", "unevaluatedProperties") and value is False:
        known = sorted(schema.get("properties", {}))
        strange = [n for n in sorted(instance.keys() - set(known)) if repr(n) in error.message]
        told = f"is not known here; known are: {', '.join(known) or 'none'}"
        yield from (_fault([*path, name], told) for name in strange)
        if not strange:  # whatever the message looks like, a fault is never dropped
            yield _fault(path, error.message)
    else:
        yield _fault(path, error.message)


def _fault(path: list[Any], detail: str) -> dict[str, str]:
    return {"pointer": pointer(path), "detail": _short(detail)}


def _short(text: str) -> str:
    return text if len(text) <= MAX_FAULT_CHARS else text[:MAX_FAULT_CHARS] + "…"


def checked(schema: Schema, args: Any) -> dict[str, Any]:
    """`args` with defaults filled, or InvalidArgs (422) that lists every fault in `errors`.

    Filled before the digest is taken, so that `{}` and `{"active": false}` are the same call
    when false is the default (case A6). Args sent as a JSON string are refused (case A9).
    """
    if not isinstance(args, dict):
        kind = "a string: send the object itself" if isinstance(args, str) else "not an object"
        fault = {"pointer": ARGS, "detail": f"args must be a JSON object, and this is {kind}"}
        raise InvalidArgs(fault["detail"] + ".", errors=[fault])
    filled = schema.filled(args)
    if found := schema.faults(filled):
        faults = [{**fault, "pointer": ARGS + fault["pointer"]} for fault in found]
        lines = "; ".join(f"{fault['pointer']}: {fault['detail']}" for fault in faults)
        raise InvalidArgs(f"The args do not fit the tool's schema. {lines}", errors=faults)
    return filled
