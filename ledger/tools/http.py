"""Tools that are HTTP requests: what the tools file describes, ready to be called."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any
from urllib.parse import unquote

import httpx
import jmespath
from jmespath.exceptions import JMESPathError

from ledger.outcomes import (
    Applied,
    Done,
    Failed,
    NotApplied,
    Outcome,
    Sighting,
    StillUnknown,
    Unknown,
)
from ledger.states import Direction
from ledger.tools import verdicts
from ledger.tools.client import Answer, send
from ledger.tools.contract import Call
from ledger.tools.placeholders import (
    ABSENT,
    Template,
    Unfilled,
    as_text,
    in_jmespath,
    in_url,
)

WITH_BODY = frozenset({"POST", "PUT", "PATCH"})
# RFC 9110, 5.5: these would end the header and begin another.
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
MASK = "•••"
# A secret shorter than this is a word that answers may contain by chance.
MIN_MASKED_CHARS = 4


@dataclass(frozen=True, slots=True)
class Body:
    """`json`: nested dicts and lists whose text leaves are templates; `form`: flat. Or the args."""

    kind: str  # "json" | "form" | "args" | "none"
    content: Any = None


@dataclass(frozen=True, slots=True)
class Action:
    """One described request. `secrets` are header values; they are in no repr."""

    method: str
    url: Template
    headers: Mapping[str, Template]
    body: Body
    secrets: Mapping[str, str] = field(default_factory=dict, repr=False)
    match: Template | None = None
    gone_is_done: bool = False

    def request(self, call: Call, *, with_key: bool) -> httpx.Request:
        """The request for this call, or Unfilled when a value it needs is not there."""
        scope = scope_of(call)
        # A compressed megabyte may unpack to a gigabyte, so compression is not asked for.
        headers = {"Accept-Encoding": "identity", "User-Agent": "saga-console"}
        headers |= {name: _header(value, scope) for name, value in self.headers.items()}
        headers.update(self.secrets)
        if with_key:
            headers["Idempotency-Key"] = call.idempotency_key
        url = _url(self.url, scope)
        raw = [(name.encode("ascii"), value.encode("utf-8")) for name, value in headers.items()]
        match self.body.kind:
            case "json":
                sent = _json(self.body.content, scope)
                if sent is ABSENT:
                    raise Unfilled("the json body has no value")
                return httpx.Request(self.method, url, headers=raw, json=sent)
            case "form":
                form = _form(self.body.content, scope)
                return httpx.Request(self.method, url, headers=raw, data=form)
            case "args":
                return httpx.Request(self.method, url, headers=raw, json=call.args)
        return httpx.Request(self.method, url, headers=raw)

    @property
    def _telling(self) -> Iterator[str]:
        for secret in self.secrets.values():
            for part in (secret, secret.partition(" ")[2]):  # "Bearer x", and x alone
                if len(part) >= MIN_MASKED_CHARS:
                    yield part

    def masked(self, text: str) -> str:
        """`text` without this action's secrets: a target may echo what it was sent."""
        for part in self._telling:
            text = text.replace(part, MASK)
        return text

    def without_secrets(self, answer: Answer) -> Answer:
        """The answer with this action's secrets masked in its body."""
        body = answer.body
        for part in self._telling:
            body = body.replace(part.encode(), MASK.encode())
        return replace(answer, body=body)


def scope_of(call: Call) -> dict[str, Any]:
    """What placeholders may name."""
    return {
        "args": call.args,
        "result": call.result,
        "idempotency_key": call.idempotency_key,
        "saga": call.saga,
        "step": call.step,
    }


def _header(value: Template, scope: Mapping[str, Any]) -> str:
    text = value.filled(scope, as_text)
    if _CONTROL.search(text):
        raise Unfilled("a header would contain a line break or another control character")
    return text


def _url(url: Template, scope: Mapping[str, Any]) -> str:
    text, in_query = "", False
    for part in url.parts:
        if isinstance(part, str):
            text, in_query = text + part, in_query or "?" in part
            continue
        value = in_url(part, part.value(scope))
        if not value and not in_query:
            # It would turn `DELETE /orders/{args.id}` into a DELETE of the collection.
            raise Unfilled(f"{part} is empty, which would change the path of the URL")
        text += value
    path = unquote(text.partition("://")[2].partition("?")[0]).replace("\\", "/")
    # Dots cannot be encoded away (RFC 3986, 6.2.2.3), and some targets decode %2F before they
    # walk the path: either way the value would climb out of its place.
    if url.placeholders and not {".", ".."}.isdisjoint(path.split("/")):
        raise Unfilled("a value would change the path of the URL (. or ..)")
    return text


def _json(node: Any, scope: Mapping[str, Any]) -> Any:
    if isinstance(node, Template):
        if node.alone is None:
            return node.filled(scope, as_text)
        return node.alone.value(scope)
    if isinstance(node, dict):
        filled = {name: _json(child, scope) for name, child in node.items()}
        # An optional arg that was not given leaves its member out; null stays null.
        return {name: value for name, value in filled.items() if value is not ABSENT}
    if isinstance(node, list):
        return [value for child in node if (value := _json(child, scope)) is not ABSENT]
    return node


def _form(fields: Mapping[str, Template], scope: Mapping[str, Any]) -> dict[str, str]:
    form: dict[str, str] = {}
    for name, value in fields.items():
        # A form has no null: an optional arg that is absent or null leaves its field out.
        if value.alone is not None and value.alone.value(scope) in (ABSENT, None):
            continue
        form[name] = value.filled(scope, as_text)
    return form


@dataclass(frozen=True, slots=True)
class HttpTarget:
    """The target of a tool from the tools file: one action a direction, and how to look."""

    actions: Mapping[Direction, Action]
    probes: Mapping[Direction, Action]

    @property
    def directions(self) -> frozenset[Direction]:
        return frozenset(self.actions)

    @property
    def probed(self) -> frozenset[Direction]:
        return frozenset(self.probes)

    def run(self, call: Call) -> Outcome:
        """Send the request of this direction once, with the call's Idempotency-Key."""
        action = self.actions[call.direction]
        try:
            request = action.request(call, with_key=True)
        except (httpx.InvalidURL, ValueError) as error:  # Unfilled is a ValueError
            return Failed(action.masked(f"nothing was sent: {error}"))
        try:
            answer = send(request, timeout_s=call.timeout_s)
        except (httpx.TransportError, httpx.InvalidURL) as error:
            return _masked(action, verdicts.of_error(error))
        answer = action.without_secrets(answer)
        if action.gone_is_done and answer.status in (404, 410):
            return Done({"status": answer.status, "text": answer.text})
        return _masked(action, verdicts.of_answer(answer, datetime.now(UTC)))

    def probe(self, call: Call) -> Sighting:
        """Look for the effect. 2xx with a match: applied; 404 or no match: not applied."""
        return looked(self.probes[call.direction], call)


def looked(action: Action, call: Call) -> Sighting:
    """What one look of `action` saw."""
    try:
        # Without the key: a target that dedupes would take a look for the effect itself.
        request = action.request(call, with_key=False)
        answer = send(request, timeout_s=call.timeout_s)
        return _sighting(action, action.without_secrets(answer), scope_of(call))
    except (httpx.TransportError, httpx.InvalidURL, JMESPathError, ValueError) as error:
        return StillUnknown(action.masked(f"could not look: {type(error).__name__}: {error}"))


def _sighting(action: Action, answer: Answer, scope: Mapping[str, Any]) -> Sighting:
    if answer.status == 404:
        return NotApplied()
    if not 200 <= answer.status < 300:
        return StillUnknown(f"the probe got {answer.status} {verdicts.snippet(answer)}".strip())
    if answer.broken:
        return StillUnknown(f"the probe's answer is not whole: {answer.broken}")
    if action.match is None:
        return Applied(verdicts.result_of(answer))
    # Only JSON can be searched. A login page with status 200 is not "nothing found".
    value = jmespath.search(action.match.filled(scope, in_jmespath), json.loads(answer.body))
    # What JMESPath itself calls false (its specification, "or expressions"); 0 is a value.
    nothing = value is None or value is False or value in ("", [], {})
    return NotApplied() if nothing else Applied(value)


def _masked(action: Action, outcome: Outcome) -> Outcome:
    match outcome:
        case Failed(error, retryable, wait):
            return Failed(action.masked(error), retryable, wait)
        case Unknown(reason):
            return Unknown(action.masked(reason))
        case Done():
            return outcome
