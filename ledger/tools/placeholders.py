"""Placeholders such as `{args.order_id}`: read once, checked when loaded, filled per call.

`{name}` and `{name.part}` are placeholders, `{{name}}` is the literal text `{name}`; every
other brace is itself, so that JMESPath's `{a: b}` needs no escape. A list item is named by
its number: `{args.lines.0.sku}`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

import rfc8785

from ledger.tools.faults import DefinitionError
from ledger.tools.schemas import resolved

_NAME = r"[A-Za-z_][A-Za-z0-9_.\-]*"
_TOKEN = re.compile(rf"\{{\{{({_NAME})\}}\}}|\{{({_NAME})\}}")
_SAGA = frozenset({"id", "task_id", "name", "metadata"})
_STEP = frozenset({"id", "step_id", "position"})
ABSENT = object()


class Unfilled(ValueError):
    """A placeholder has no usable value, so nothing may be sent."""


@dataclass(frozen=True, slots=True)
class Placeholder:
    """A path into the call: `("args", "order_id")`."""

    path: tuple[str, ...]

    def __str__(self) -> str:
        return "{" + ".".join(self.path) + "}"

    def value(self, scope: Mapping[str, Any]) -> Any:
        """What the call has there, or ABSENT."""
        at: Any = scope
        for name in self.path:
            if isinstance(at, Mapping) and name in at:
                at = at[name]
            elif isinstance(at, list) and name.isdigit() and int(name) < len(at):
                at = at[int(name)]
            else:
                return ABSENT
        return at


@dataclass(frozen=True, slots=True)
class Template:
    """Literal text and placeholders, in order."""

    parts: tuple[str | Placeholder, ...]

    @property
    def placeholders(self) -> tuple[Placeholder, ...]:
        return tuple(part for part in self.parts if isinstance(part, Placeholder))

    @property
    def alone(self) -> Placeholder | None:
        """The placeholder, when the template is nothing else."""
        return self.placeholders[0] if self.placeholders and len(self.parts) == 1 else None

    def filled(self, scope: Mapping[str, Any], write: Callable[[Placeholder, Any], str]) -> str:
        """The text; `write` turns the value of one placeholder into text or raises Unfilled."""
        return "".join(
            part if isinstance(part, str) else write(part, part.value(scope)) for part in self.parts
        )


def template(text: str) -> Template:
    """Read a text with placeholders."""
    parts: list[str | Placeholder] = []
    literal, end = "", 0
    for token in _TOKEN.finditer(text):
        literal += text[end : token.start()]
        end = token.end()
        if token.group(1):
            literal += "{" + token.group(1) + "}"
            continue
        if literal:
            parts.append(literal)
        parts.append(Placeholder(tuple(token.group(2).split("."))))
        literal = ""
    literal += text[end:]
    return Template((*parts, literal) if literal else tuple(parts))


def check(found: Template, args_schema: dict[str, Any], *, result: bool, identity: bool) -> None:
    """Raise DefinitionError when a placeholder can never have a value.

    `result` says whether a recorded forward result exists here; `identity` whether this is
    an effect key or a resource, which are made of args alone.
    """
    for placeholder in found.placeholders:
        root, *path = placeholder.path
        if root == "args":
            if not path or not has_property(args_schema, args_schema, path):
                raise DefinitionError(f"{placeholder} names no property of the args schema")
        elif identity:
            raise DefinitionError(f"{placeholder}: only {{args.…}} can be part of an identity")
        elif not _is_known(root, path, result):
            raise DefinitionError(_unknown(placeholder, result))


def _is_known(root: str, path: list[str], result: bool) -> bool:
    match root:
        case "result":
            return result
        case "idempotency_key":
            return not path
        case "saga":
            return bool(path) and path[0] in _SAGA
        case "step":
            return bool(path) and path[0] in _STEP
    return False


def _unknown(placeholder: Placeholder, result: bool) -> str:
    if placeholder.path[0] == "result":
        return f"{placeholder}: there is no recorded result before the effect; use {{args.…}}"
    roots = ["{args.…}", *(["{result.…}"] if result else []), "{idempotency_key}"]
    roots += ["{saga.id|task_id|name|metadata.…}", "{step.id|step_id|position}"]
    return f"{placeholder} is unknown; known are {', '.join(roots)}"


def has_property(schema: dict[str, Any], node: Any, path: list[str], depth: int = 0) -> bool:
    """Whether a value that fits `node` may have `path`; a node that says nothing may."""
    if not path or not isinstance(node, dict) or depth > 32:
        return node is not False
    branches = [part for word in ("allOf", "anyOf", "oneOf") for part in node.get(word, ())]
    branches += [node[word] for word in ("if", "then", "else") if word in node]
    if "$ref" in node:
        branches.append(resolved(schema, node["$ref"]))
    named = [b for b in branches if isinstance(b, dict) and _names_members(b)]
    if any(has_property(schema, branch, path, depth + 1) for branch in named):
        return True
    name, *rest = path
    if name in node.get("properties", {}):
        return has_property(schema, node["properties"][name], rest, depth + 1)
    if name.isdigit() and ("items" in node or "prefixItems" in node):
        return has_property(schema, node.get("items", True), rest, depth + 1)
    if node.get("additionalProperties", False) is not False or "patternProperties" in node:
        return True
    # A nested value about which the schema says nothing may hold anything.
    return depth > 0 and not named and not _names_members(node) and _may_nest(node)


def _names_members(node: dict[str, Any]) -> bool:
    words = {"properties", "items", "prefixItems", "allOf", "anyOf", "oneOf", "$ref", "then"}
    return bool(words & node.keys())


def _may_nest(node: dict[str, Any]) -> bool:
    kinds = node.get("type", "object")
    return bool({"object", "array"} & ({kinds} if isinstance(kinds, str) else set(kinds)))


def as_text(placeholder: Placeholder, value: Any) -> str:
    """Text as given; numbers, true, false and nested values as canonical JSON."""
    if value is ABSENT or value is None:
        raise Unfilled(f"{placeholder} has no value")
    return value if isinstance(value, str) else rfc8785.dumps(value).decode("utf-8")


def in_url(placeholder: Placeholder, value: Any) -> str:
    """Percent-encoded, so that a value can never become a slash, a query or a host."""
    if isinstance(value, dict | list):
        raise Unfilled(f"{placeholder} is an object or a list, which no URL can hold")
    return quote(as_text(placeholder, value), safe="")


def in_jmespath(placeholder: Placeholder, value: Any) -> str:
    """A JMESPath JSON literal. Its delimiter, the backtick, is written as an escape."""
    if value is ABSENT:
        raise Unfilled(f"{placeholder} has no value")
    return "`" + json.dumps(value).replace("`", "\\u0060") + "`"
