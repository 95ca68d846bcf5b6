"""JSON at the door: what comes in is read strictly, what a target answered is always kept.

`parse_json` refuses every text that two readers could understand differently (cases C89
to C93); `storable` turns anything into JSON text that Postgres accepts. Pure: no Django.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from typing import Any, NamedTuple, NoReturn

from ledger.errors import InvalidArgs, InvalidJson, TooLarge

# RFC 8259 section 6, RFC 7493 section 2.2: beyond this, doubles no longer tell integers apart.
MAX_INTEGER = 2**53 - 1
# ECMA-262 7.1.12.1: from here on a double is written with an exponent, so its canonical
# text reads back as the same double. Below it the text would be an unsafe integer.
EXPONENT_FROM = 1e21
# What no Postgres text or jsonb value can hold.
UNSTORABLE = re.compile("[\x00\ud800-\udfff]")
MAX_STORED_DEPTH = 100
# Characters of one fact of an entry, and of a stored result: both are cut in the same way, and any
# honest one stays whole.
MAX_FACT = 200_000


class _Repeated(dict[str, Any]):
    """An object in which `key` came twice; only ever seen by `_refuse_first_fault`."""

    key = ""


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) == len(pairs):
        return members
    repeated = _Repeated(members)
    seen: set[str] = set()
    for key, _ in pairs:
        if key in seen:
            repeated.key = key
            break
        seen.add(key)
    return repeated


_DECODER = json.JSONDecoder(object_pairs_hook=_object)


def pointer(path: tuple[Any, ...] | list[Any]) -> str:
    """RFC 6901 JSON Pointer of a path of names and indexes; "" is the whole document."""
    return "".join("/" + str(part).replace("~", "~0").replace("/", "~1") for part in path)


def parse_json(raw: bytes, *, max_bytes: int = 1_000_000, max_depth: int = 64) -> Any:
    """Read one JSON text (UTF-8) into Python values, or say where it is wrong.

    Raises TooLarge (413) over `max_bytes`; InvalidJson (400) when it is not JSON, not
    UTF-8 or nested deeper than `max_depth`; InvalidArgs (422) when it is JSON that cannot
    be taken literally: duplicate keys, NaN, infinities, integers beyond 2^53, lone
    surrogates, NUL. It names the first such fault.
    """
    if len(raw) > max_bytes:
        raise TooLarge(f"The body has {len(raw)} bytes; at most {max_bytes} are accepted.")
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError as error:
        raise InvalidJson(
            f"The body is not UTF-8: byte {error.start} cannot be read. Send UTF-8."
        ) from None
    try:
        value = _DECODER.decode(text)
    except json.JSONDecodeError as error:
        raise InvalidJson(
            f"Not JSON at line {error.lineno} column {error.colno}: {error.msg}."
        ) from None
    except RecursionError:
        raise _too_deep(max_depth) from None
    except ValueError:
        # Python's own limit on integer digits (4300) is reached long after ours.
        what = "a number has thousands of digits; integers beyond 2^53 must be sent as strings"
        raise _refused("", what) from None
    _refuse_first_fault(value, max_depth, strings="\\u" in text)
    return value


def _too_deep(max_depth: int) -> InvalidJson:
    return InvalidJson(f"The body is nested deeper than {max_depth} levels. Flatten it.")


class _Place(NamedTuple):
    """A container met on the way down, linked to the one around it."""

    around: _Place | None
    name: str | int
    value: Any
    depth: int


def _refuse_first_fault(root: Any, max_depth: int, *, strings: bool) -> None:
    # Iterative, because depth is the caller's choice until it has been checked. `strings` is
    # False when no \u escape is present: then UTF-8 has already ruled out both faults.
    stack = [_Place(None, "", (root,), 0)]
    while stack:
        place = stack.pop()
        container = place.value
        if type(container) is _Repeated:
            _refuse(place, None, f'the key "{_visible(container.key)}" is there twice; keep one')
        members = container.items() if isinstance(container, dict) else enumerate(container)
        for name, value in members:
            kind = type(value)
            if kind is str:
                if strings and UNSTORABLE.search(value):
                    _refuse(place, name, "NUL or half a surrogate pair cannot be stored")
            elif kind is int:
                if not -MAX_INTEGER <= value <= MAX_INTEGER:
                    _refuse(place, name, "an integer beyond 2^53 must be sent as a string")
            elif kind is float:
                _check_float(place, name, value)
            elif kind in (dict, list, _Repeated):
                if place.depth >= max_depth:
                    raise _too_deep(max_depth)
                stack.append(_Place(place, name, value, place.depth + 1))
            if strings and type(name) is str and UNSTORABLE.search(name):
                _refuse(place, name, "NUL or half a surrogate pair in a key cannot be stored")


def _check_float(place: _Place, name: str | int, value: float) -> None:
    if not math.isfinite(value):
        _refuse(place, name, "NaN and infinite numbers (1e400 is one) are not JSON")
    if MAX_INTEGER < abs(value) < EXPONENT_FROM:
        _refuse(place, name, "a whole number beyond 2^53 must be sent as a string")


def _refuse(place: _Place, name: str | int | None, what: str) -> NoReturn:
    path: list[str | int] = [] if name is None else [name]
    at: _Place | None = place
    while at is not None and at.around is not None:
        path.append(at.name)
        at = at.around
    # The outermost name is the index in the tuple that wraps the root.
    where = _visible(pointer(path[::-1][1:]))
    raise _refused(where, what)


def _refused(where: str, what: str) -> InvalidArgs:
    fault = {"pointer": where, "detail": what}
    return InvalidArgs(f"At {where or 'the top'}: {what}.", errors=[fault])


def _visible(text: str) -> str:
    return UNSTORABLE.sub(lambda found: f"\\u{ord(found.group()):04x}", text)


def storable(value: Any, *, max_chars: int = MAX_FACT) -> tuple[str, bool]:
    """JSON text of anything a target answered, and whether something had to be changed.

    NUL and lone surrogates become visible escapes, NaN and infinities strings, values that
    are not JSON their repr. A text over `max_chars` characters loses the ends of its longest
    strings first, each with a mark saying how much was cut, so that ids survive for the
    undo; what is still too long becomes `{"cut": …, "start": …}`. Never raises (rule 5.14).
    """
    try:
        text, changed = _written(value, None)
        for longest in (max_chars // 4, max_chars // 32, 200):
            if len(text) <= max_chars:
                return text, changed
            shorter, _ = _written(value, longest)
            if len(shorter) <= max_chars:
                return shorter, True
    except Exception as error:  # an answer may be any object, its repr included
        text = json.dumps({"unstorable": type(value).__name__, "error": type(error).__name__})
        return text, True
    kept = max(0, (max_chars - 100) // 2)  # escaping the quotes again at most doubles it
    mark = f"{len(text) - kept} of {len(text)} characters were cut"
    return json.dumps({"cut": mark, "start": text[:kept]}, ensure_ascii=False), True


def storable_facts(facts: Mapping[str, Any]) -> str:
    """The JSON text of an object whose names all stay: what is too long is cut value by value.

    Otherwise one huge argument would take the state and the key along with it.
    """
    text, is_changed = storable(facts)
    if not is_changed:
        return text
    kept = (
        f"{json.dumps(name)}:{storable(value, max_chars=MAX_FACT)[0]}"
        for name, value in facts.items()
    )
    return "{" + ",".join(kept) + "}"


def _written(value: Any, longest: int | None) -> tuple[str, bool]:
    keeper = _Keeper(longest)
    kept = keeper.keep(value, 0)
    return json.dumps(kept, ensure_ascii=False, separators=(",", ":")), keeper.changed


class _Keeper:
    """Copies a value into one that Postgres can hold, noting whether it differs."""

    def __init__(self, longest: int | None) -> None:
        self.longest = longest
        self.changed = False

    def keep(self, value: Any, depth: int) -> Any:
        if value is None or value is True or value is False:
            return value
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, int):
            return self.integer(int(value))
        if isinstance(value, float):
            return float(value) if math.isfinite(value) else self.odd(_nonfinite(value))
        if depth >= MAX_STORED_DEPTH:
            return self.odd("… nested too deep to keep")
        if isinstance(value, dict):
            return {self.name(k): self.keep(v, depth + 1) for k, v in value.items()}
        if isinstance(value, list | tuple):
            return [self.keep(item, depth + 1) for item in value]
        if isinstance(value, bytes | bytearray):
            return self.odd(bytes(value).decode("utf-8", "backslashreplace"))
        return self.odd(repr(value))

    def integer(self, value: int) -> Any:
        # Python refuses to write more than 4300 digits; 1024 bits is far below that.
        return value if value.bit_length() <= 1024 else self.odd(hex(value))

    def name(self, key: Any) -> str:
        return self.text(key) if isinstance(key, str) else str(self.odd(str(key)))

    def odd(self, text: str) -> str:
        self.changed = True
        return self.text(text)

    def text(self, text: str) -> str:
        text = str.__str__(text)  # what an enum's member is, not what it is called
        if UNSTORABLE.search(text):
            self.changed = True
            text = _visible(text)
        if self.longest is not None and len(text) > self.longest:
            return f"{text[: self.longest]}… [{len(text) - self.longest} characters were cut]"
        return text


def _nonfinite(value: float) -> str:
    if math.isnan(value):
        return "NaN"
    return "Infinity" if value > 0 else "-Infinity"
