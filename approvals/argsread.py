"""What a browser sent of a form, read as the kinds that its parts say. Pure.

Types survive the way through a browser, which knows only text (case A13).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Protocol

from approvals.argsvalues import ABSENT, MAX_PARTS, Typed
from ledger.errors import SagaError
from ledger.jsontext import parse_json, pointer

_INTEGER = re.compile(r"-?(0|[1-9][0-9]*)(\.0+)?")
_NUMBER = re.compile(r"-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?")


class Posted(Protocol):
    """What a browser sent."""

    def get(self, key: str, /) -> Any: ...
    def getlist(self, key: str, /) -> Sequence[Any]: ...


def read(sent: Posted) -> tuple[Any, dict[str, str]]:
    """What was sent, as a value, and what is wrong by pointer. `Typed` stands for what is wrong."""
    faults: dict[str, str] = {}
    return _read(sent, (), faults), faults


def _read(sent: Posted, path: tuple[Any, ...], faults: dict[str, str]) -> Any:
    here = pointer(path)
    kind = sent.get(f"k:{here}") or ""
    if kind == "absent":
        return ABSENT
    if kind == "object":
        names = dict.fromkeys(str(name) for name in sent.getlist(f"p:{here}"))
        found = {name: _read(sent, (*path, name), faults) for name in names}
        return {name: value for name, value in found.items() if value is not ABSENT}
    if kind == "list":
        items = (_read(sent, (*path, index), faults) for index in range(_length(sent, here)))
        return [item for item in items if item is not ABSENT]
    text = (sent.get(f"v:{here}") or "").replace("\r\n", "\n")
    value = _leaf(kind, text)
    if isinstance(value, Typed):
        faults[here] = _WANTED.get(value.kind, "choose one")
    return value


def _length(sent: Posted, here: str) -> int:
    told = sent.get(f"n:{here}") or ""
    return min(int(told), MAX_PARTS) if re.fullmatch("[0-9]{1,4}", told) else 0


_WANTED = {
    "integer": "write a whole number, such as 1200",
    "number": "write a number, such as 12.5",
    "json": "this is not JSON that can be taken",
}


def _leaf(kind: str, text: str) -> Any:
    match kind:
        case "text":
            return text
        case "null":
            return None
        case "integer" if _INTEGER.fullmatch(text.strip()):
            return int(text.strip().partition(".")[0])
        case "number" if _NUMBER.fullmatch(text.strip()):
            return _parsed(kind, text)
        case "boolean" | "enum" | "json" | "keep":
            return _parsed(kind, text)
    return Typed(kind, text)


def _parsed(kind: str, text: str) -> Any:
    try:
        return parse_json(text.strip().encode("utf-8", "surrogatepass"))
    except SagaError:
        return Typed(kind, text)
