"""From the definition of a file tool (as in the file, or as snapshotted) to the tool itself."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit

import jmespath
from jmespath.exceptions import JMESPathError

from ledger.errors import InvalidArgs
from ledger.keys import canonical
from ledger.states import BlastRadius, Direction, Tier
from ledger.tools.contract import Tool, check_tier, digest_of
from ledger.tools.faults import DefinitionError
from ledger.tools.fileschema import DEFAULTS
from ledger.tools.http import WITH_BODY, Action, Body, HttpTarget
from ledger.tools.identity import Identity
from ledger.tools.placeholders import Template, check, template
from ledger.tools.schemas import check_schema, closed

Path = tuple[str | int, ...]
ACTIONS = {
    "execute": Direction.FORWARD,
    "compensate": Direction.COMPENSATE,
    "correct": Direction.CORRECT,
}
_ORIGIN = re.compile(r"^https?://(?P<authority>[^/?#]+)")
_ENV = re.compile(r"^env:([A-Za-z_][A-Za-z0-9_]*)$")
# Headers that carry credentials, and so must come from the environment.
_SECRET_HEADERS = frozenset({"authorization", "proxy-authorization", "cookie", "x-api-key"})
# Headers that are the client's own business.
_OWN_HEADERS = frozenset(
    {"idempotency-key", "host", "content-length", "transfer-encoding", "connection"}
    | {"accept-encoding"}
)


def defined(key: str, written: Mapping[str, Any]) -> dict[str, Any]:
    """The whole definition: what the file says, with every default written out.

    Without `drill`, which changes no call: a sandbox that moves makes no new tool.
    """
    whole = {**DEFAULTS, "title": key, **written}
    whole.pop("drill", None)
    return {"source": "file", "key": key, **whole, "args": closed(written["args"])}


class Builder:
    """Builds one tool and collects its faults, so that a file is corrected in one go."""

    def __init__(self, definition: dict[str, Any], environ: Mapping[str, str]) -> None:
        self.definition = definition
        self.environ = environ
        self.faults: list[DefinitionError] = []

    def build(self) -> Tool | None:
        """The tool, or None when `faults` says why not."""
        given = self.definition
        for name in ("args", "result"):
            if name in given:
                with self._fault_at(name):
                    check_schema(given[name])
        if self.faults:
            return None  # the placeholders cannot be judged without a schema
        for name in ("effect_key", "resource"):
            if given[name] is not None:
                with self._fault_at(name):
                    Identity(given[name], given["args"], name)
        actions = {
            direction: self._action(given[name], name)
            for name, direction in ACTIONS.items()
            if name in given
        }
        probes = {d: self._action(node, *path) for path, d, node in self._probes()}
        with self._fault_at("tier"):
            check_tier(Tier(given["tier"]), frozenset(actions))
        digest = ""
        with self._fault_at():
            digest = digest_of(given)
        return None if self.faults else self._tool(HttpTarget(actions, probes), digest)

    def check(self, node: Mapping[str, Any]) -> Action:
        """A drill's own look for the effect; what is wrong with it is among `faults`."""
        return self._action(node, "drill", "check")

    def _tool(self, target: HttpTarget, digest: str) -> Tool:
        given = self.definition
        return Tool(
            key=given["key"],
            title=given["title"],
            version=given["version"],
            tier=Tier(given["tier"]),
            blast_radius=BlastRadius(given["blast_radius"]),
            args_schema=given["args"],
            definition=given,
            digest=digest,
            target=target,
            result_schema=given.get("result"),
            effect_key=given["effect_key"],
            resource=given["resource"],
            timeout_s=given["timeout_s"],
            retries=given["retries"],
            downstream_idempotent=given["downstream_idempotent"],
            idempotent_for_s=given["idempotent_for_s"],
            settle_s=given["settle_s"],
            compatible_with=frozenset(given["compatible_with"]),
        )

    @contextmanager
    def _fault_at(self, *path: str | int) -> Iterator[None]:
        try:
            yield
        except DefinitionError as error:
            self.faults.append(DefinitionError(error.reason, (*path, *error.path)))
        except InvalidArgs as error:  # the definition itself has no canonical form
            self.faults.append(DefinitionError(error.detail, path))

    def _probes(self) -> Iterator[tuple[tuple[str, ...], Direction, Mapping[str, Any]]]:
        if "probe" in self.definition:
            yield ("probe",), Direction.FORWARD, self.definition["probe"]
        for name, direction in ACTIONS.items():
            if "probe" in self.definition.get(name, {}):
                yield (name, "probe"), direction, self.definition[name]["probe"]

    def _action(self, node: Mapping[str, Any], *path: str) -> Action:
        secrets: dict[str, str] = {}
        headers: dict[str, Template] = {}
        for name, text in node.get("headers", {}).items():
            with self._fault_at(*path, "headers", name):
                if name.lower() in _OWN_HEADERS:
                    raise DefinitionError(f"{name} is set by the console itself")
                if variable := _ENV.match(text):
                    secrets[name] = self._secret(variable.group(1))
                else:
                    headers[name] = self._header(name, text, path)
        return Action(
            method=node["method"],
            url=self._url(node["url"], path),
            headers=headers,
            body=self._body(node, path),
            secrets=secrets,
            match=self._match(node["match"], path) if "match" in node else None,
            gone_is_done=node.get("gone_is_done", False),
        )

    def _secret(self, variable: str) -> str:
        value = self.environ.get(variable, "").strip()
        if not value:
            raise DefinitionError(f"the environment variable {variable} is not set")
        if not value.isprintable():
            raise DefinitionError(f"the environment variable {variable} has control characters")
        return value

    def _header(self, name: str, text: str, path: tuple[str, ...]) -> Template:
        if name.lower() in _SECRET_HEADERS:
            raise DefinitionError(
                f'{name} carries a secret: write "env:NAME" and put the whole value there'
            )
        if not text.isprintable():
            raise DefinitionError("a header cannot hold a line break or control character")
        return self._template(text, path)

    def _template(self, text: str, path: tuple[str, ...]) -> Template:
        found = template(text)
        check(
            found,
            self.definition["args"],
            result=path[0] in ("compensate", "correct", "drill"),
            identity=False,
        )
        return found

    def _url(self, text: str, path: tuple[str, ...]) -> Template:
        with self._fault_at(*path, "url"):
            check_url(text)
            return self._template(text, path)
        return Template(())

    def _match(self, text: str, path: tuple[str, ...]) -> Template:
        with self._fault_at(*path, "match"):
            found = self._template(text, path)
            try:
                jmespath.compile(found.filled({}, lambda placeholder, _: '`"x"`'))
            except JMESPathError as error:
                reason = " ".join(str(error).split())
                raise DefinitionError(f"not a JMESPath expression: {reason}") from None
            return found
        return Template(())

    def _body(self, node: Mapping[str, Any], path: tuple[str, ...]) -> Body:
        if "form" in node and "json" in node:
            self.faults.append(DefinitionError("form and json exclude each other", (*path, "form")))
        if "form" in node:
            fields = node["form"].items()
            form = {name: self._text_of(v, (*path, "form", name), path) for name, v in fields}
            return Body("form", form)
        if "json" in node:
            return Body("json", self._json(node["json"], (*path, "json"), path))
        return Body("args" if node["method"] in WITH_BODY else "none")

    def _text_of(self, value: Any, at: Path, path: tuple[str, ...]) -> Template:
        return self._leaf(value if isinstance(value, str) else canonical(value), at, path)

    def _leaf(self, text: str, at: Path, path: tuple[str, ...]) -> Template:
        with self._fault_at(*at):
            if _ENV.match(text):
                raise DefinitionError("a secret can only be a whole header, never part of a body")
            return self._template(text, path)
        return Template(())

    def _json(self, node: Any, at: Path, path: tuple[str, ...]) -> Any:
        if isinstance(node, str):
            return self._leaf(node, at, path)
        if isinstance(node, dict):
            return {name: self._json(child, (*at, name), path) for name, child in node.items()}
        if isinstance(node, list):
            return [self._json(child, (*at, i), path) for i, child in enumerate(node)]
        return node


def check_url(text: str) -> None:
    """Raise DefinitionError unless scheme and host are fixed, and hold no credentials."""
    found = _ORIGIN.match(text)
    if not found:
        raise DefinitionError("a URL starts with http:// or https:// and a host")
    if "{" in found["authority"] or "}" in found["authority"]:
        raise DefinitionError("a placeholder can never be part of scheme or host")
    if "@" in found["authority"]:
        raise DefinitionError("credentials do not belong in a URL: use an env: header")
    if "#" in text:
        raise DefinitionError("a fragment (#…) is never sent; remove it")
    if not text.isprintable() or " " in text or "\\" in text:
        raise DefinitionError("a URL holds no spaces, backslashes or control characters")
    try:
        parts = urlsplit(text)
        usable = bool(parts.hostname) and parts.port != 0
    except ValueError as error:
        raise DefinitionError(f"not a URL: {error}") from None
    if not usable:
        raise DefinitionError("a URL needs a host, and a port between 1 and 65535")
