"""The one place where secrets are taken out of what leaves: pages, mail, webhooks, logs. Pure.

Two kinds of secret. Those that this process holds itself (`known`: header values, signing
keys, passwords) are masked wherever their text appears. Those that an agent hands over in
its arguments are masked where the tool's schema says so (`"writeOnly": true` or
`"format": "password"`), and under names that can mean nothing else unless the schema says
`"writeOnly": false`. Digests are taken before, over what really runs (case G5).
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

MASK = "•••"
# A secret shorter than this is a word that a text may contain by chance.
MIN_MASKED_CHARS = 4
# One that is looked for in everything must not be found by chance in anything.
MIN_KNOWN_CHARS = 8
# Compared without case, hyphens and underscores. `token` alone is not here: payment targets
# call what people must see so ("tok_visa").
TELLING_NAMES = frozenset(
    {"password", "passwd", "passphrase", "secret", "clientsecret", "secretkey", "apikey"}
    | {"accesstoken", "refreshtoken", "authtoken", "bearertoken", "privatekey", "authorization"}
)

_known: set[str] = set()


def know(*secrets: str) -> None:
    """From now on these never leave. Each also without its scheme: `Bearer x`, and x alone."""
    for secret in secrets:
        _known.update(part for part in parts_of(secret) if len(part) >= MIN_KNOWN_CHARS)


def parts_of(secret: str) -> Iterator[str]:
    """The texts by which a secret would be recognised."""
    for part in (secret, secret.partition(" ")[2]):
        if len(part) >= MIN_MASKED_CHARS:
            yield part


def without(text: str, secrets: Iterable[str]) -> str:
    """`text` with each of these masked, the longest first."""
    for secret in sorted(secrets, key=len, reverse=True):
        text = text.replace(secret, MASK)
    return text


def redact(value: Any, schema: Mapping[str, Any] | None = None) -> Any:
    """A copy of any JSON value, or text, that may be shown. `schema` is that of the value."""
    return _Mask(schema or {}).of(value, [schema] if schema else [])


def redact_declared(value: Any) -> Any:
    """A copy of a part of a tool's definition that may be shown.

    Names of secrets (`env:NAME`) and placeholders stay: they say where a value comes from.
    """
    return _Declared({}).of(value, [])


def secrets_in(args: Any, schema: Mapping[str, Any] | None = None) -> frozenset[str]:
    """The texts that `redact` takes out of these, as they are and as JSON writes them.

    For `without`, on what a target answered: it may say back what it was sent.
    """
    finder = _Finder(schema or {})
    finder.of(args, [schema] if schema else [])
    written = {part for text in finder.found for part in (text, json.dumps(text)[1:-1])}
    return frozenset(part for part in written if len(part) >= MIN_MASKED_CHARS)


def masked(value: Any) -> Any:
    """What stands for a secret: its length is told, so that an empty one is seen."""
    if value is None or value == "":
        return value
    size = len(value) if isinstance(value, str) else len(str(value))
    return f"{MASK} ({size} characters)"


Nodes = Sequence[Mapping[str, Any]]
# A schema may lead to itself; what is deeper than this is masked by name alone.
_DEEPEST = 30
# What a tools file writes in the place of a value: an environment variable, or a placeholder.
_STANDS_FOR = re.compile(r"env:[A-Za-z_][A-Za-z0-9_]*|\{[A-Za-z_][A-Za-z0-9_.\-]*\}")


class _Mask:
    """Walks a value beside everything that one schema says of it."""

    def __init__(self, root: Mapping[str, Any]) -> None:
        self._root = root

    def of(self, value: Any, nodes: Nodes) -> Any:
        if isinstance(value, str):
            return without(value, tuple(_known)) if _known else value
        nodes = [inner for node in nodes for inner in self._branches(node)]
        if isinstance(value, list):
            return [self.of(one, _places(nodes, index)) for index, one in enumerate(value)]
        if isinstance(value, Mapping):
            return {self.of(name, ()): self._member(name, value[name], nodes) for name in value}
        return value

    def _member(self, name: str, value: Any, nodes: Nodes) -> Any:
        mine = [inner for node in _members(nodes, name) for inner in self._branches(node)]
        said = [node["writeOnly"] for node in mine if isinstance(node.get("writeOnly"), bool)]
        is_declared = any(said) or any(node.get("format") == "password" for node in mine)
        if is_declared or (_is_telling(name) and not said):
            return self._secret(value)
        return self.of(value, mine)

    def _secret(self, value: Any) -> Any:
        return masked(value)

    def _branches(self, node: Any, depth: int = 0) -> Iterator[Mapping[str, Any]]:
        """A part of the schema, and all that it refers to or is put together from."""
        if not isinstance(node, Mapping) or depth > _DEEPEST:
            return
        yield node
        others = [node[word] for word in ("if", "then", "else") if word in node]
        for word in ("allOf", "anyOf", "oneOf"):
            others += node[word] if isinstance(node.get(word), list) else []
        for word in ("$ref", "$dynamicRef"):
            if isinstance(node.get(word), str):
                others.append(self._referred(node[word]))
        for other in others:
            yield from self._branches(other, depth + 1)

    def _referred(self, reference: str) -> Any:
        """What a local reference such as `#/$defs/card` names; nothing when it leads nowhere."""
        found: Any = self._root
        for part in reference.removeprefix("#").split("/")[1:]:
            name = part.replace("~1", "/").replace("~0", "~")
            found = found.get(name) if isinstance(found, Mapping) else None
        return found


class _Declared(_Mask):
    """Lets pass what stands for a value and is none."""

    def _secret(self, value: Any) -> Any:
        is_name = isinstance(value, str) and _STANDS_FOR.fullmatch(value)
        return value if is_name else super()._secret(value)


class _Finder(_Mask):
    """Keeps what the mask would hide, down to the leaves: a target says back parts."""

    def __init__(self, root: Mapping[str, Any]) -> None:
        super().__init__(root)
        self.found: list[str] = []

    def _secret(self, value: Any) -> Any:
        if isinstance(value, Mapping | list):
            for inner in value.values() if isinstance(value, Mapping) else value:
                self._secret(inner)
        elif value is not None and not isinstance(value, bool):
            self.found.append(str(value))


def _members(nodes: Nodes, name: str) -> list[Any]:
    found = []
    for node in nodes:
        own = node.get("properties")
        if isinstance(own, Mapping) and name in own:
            found.append(own[name])
        else:
            found.append(node.get("additionalProperties"))
    return found


def _places(nodes: Nodes, index: int) -> list[Any]:
    found = []
    for node in nodes:
        first = node.get("prefixItems")
        if isinstance(first, list) and index < len(first):
            found.append(first[index])
        else:
            found.append(node.get("items"))
    return found


def unmasked(sent: Any, shown: Any, bound: Any) -> Any:
    """What somebody who was shown `shown` for `bound` means by `sent`. Raises StillMasked.

    A part that comes back exactly as it was shown is the part that it stands for. The places of
    a list can move, so a list with a secret in it comes back whole or with the secret written anew.
    """
    if shown == bound:
        return sent
    found = instead(sent, shown, bound)
    if MASK in json.dumps(found, ensure_ascii=False):
        raise StillMasked
    return found


class StillMasked(Exception):
    """A mask is at a place where there was none, so nobody knows what it stands for."""


def instead(value: Any, before: Any, after: Any) -> Any:
    """`value` with every part that is the same in `before` as it is in `after`."""
    if _text(value) == _text(before):
        return after
    if all(isinstance(one, Mapping) for one in (value, before, after)):
        return {
            name: instead(part, before[name], after[name])
            if name in before and name in after
            else part
            for name, part in value.items()
        }
    return value


def _text(value: Any) -> str:
    """Of the JSON: true is not 1."""
    return json.dumps(value, sort_keys=True)


def _is_telling(name: str) -> bool:
    return name.casefold().replace("_", "").replace("-", "") in TELLING_NAMES


class Formatter(logging.Formatter):
    """A log line, traceback included, without what this process must not tell."""

    def format(self, record: logging.LogRecord) -> str:
        text: str = redact(super().format(record))
        return text
