"""Reading the tools file: every fault at once, each with its line; one fault and nothing loads."""

from __future__ import annotations

import difflib
import math
import os
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from jsonschema import Draft202012Validator
from jsonschema.exceptions import ValidationError

from ledger.jsontext import MAX_INTEGER, UNSTORABLE
from ledger.tools.contract import Tool
from ledger.tools.definitions import Builder, defined
from ledger.tools.drill import Drill
from ledger.tools.faults import DefinitionError, Fault, InvalidTools
from ledger.tools.fileschema import FILE
from ledger.tools.lines import Lines, syntax_line
from ledger.tools.sandbox import faults_of, shared

Place = tuple[str | int, ...]
_SHAPE = Draft202012Validator(FILE)


def read(path: str | os.PathLike[str], environ: Mapping[str, str] = os.environ) -> list[Tool]:
    """The tools of a file, in its order. Raises InvalidTools with every fault."""
    name = os.fspath(path)
    try:
        text = Path(path).read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidTools([Fault(name, f"cannot be read: {error}")]) from None
    return parsed(text, name, environ)


def parsed(text: str, name: str, environ: Mapping[str, str] = os.environ) -> list[Tool]:
    """The tools in `text`; `name` is what faults call the file."""
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise InvalidTools([Fault(f"{name}:{syntax_line(error, text)}", str(error))]) from None
    lines = Lines(text)
    faults = [*_odd_values(document, ()), *_shape_faults(document)]
    wrong = {path[1] for path, _ in faults if len(path) > 1}
    tools: list[Tool] = []
    for key, written in document.get("tools", {}).items() if _is_table(document) else ():
        if key in wrong:
            continue  # its shape is wrong, so its meaning cannot be judged yet
        built, found = _built(key, written, environ)
        tools += [built] if built else []
        faults += [(("tools", key, *fault.path), f"{key}: {fault.reason}") for fault in found]
    for tool, other in shared(tools):
        why = f"{tool.key}: the sandbox is where {other} runs in production"
        faults.append((("tools", tool.key, "drill", "base_url"), why))
    if faults:
        told = sorted({(lines.of(path), reason) for path, reason in faults})
        raise InvalidTools([Fault(f"{name}:{line}", reason) for line, reason in told])
    return tools


def _is_table(document: dict[str, Any]) -> bool:
    return isinstance(document.get("tools", {}), dict)


def _built(
    key: str, written: dict[str, Any], environ: Mapping[str, str]
) -> tuple[Tool | None, list[DefinitionError]]:
    try:
        builder = Builder(defined(key, written), environ)
    except DefinitionError as error:
        return None, [DefinitionError(error.reason, ("args", *error.path))]
    tool = builder.build()
    if tool is None or "drill" not in written:
        return tool, builder.faults
    drill = Drill(**written["drill"])
    if drill.check:
        builder.check(drill.check)
    wrong = [DefinitionError(e.reason, ("drill", *e.path)) for e in faults_of(tool, drill)]
    return replace(tool, drill=drill), builder.faults + wrong


def _odd_values(node: Any, path: Place) -> Iterator[tuple[Place, str]]:
    """TOML has values that JSON, and so a snapshot, has not."""
    if isinstance(node, dict | list):
        members = node.items() if isinstance(node, dict) else enumerate(node)
        for name, child in members:
            yield from _odd_values(child, (*path, name))
    elif isinstance(node, str) and UNSTORABLE.search(node):
        yield path, f"{path[-1]}: a NUL character cannot be stored"
    elif isinstance(node, float) and not math.isfinite(node):
        yield path, f"{path[-1]}: not a finite number"
    elif isinstance(node, int) and abs(node) > MAX_INTEGER:
        yield path, f"{path[-1]}: an integer beyond 2^53"
    elif not isinstance(node, str | int | float):
        yield path, f"{path[-1]}: write dates and times as text, in quotes"


def _shape_faults(document: dict[str, Any]) -> Iterator[tuple[Place, str]]:
    for error in _SHAPE.iter_errors(document):
        path = tuple(error.absolute_path)
        where = ".".join(map(str, path[1:])) or "the file"
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
