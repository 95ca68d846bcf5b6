"""Reading the tools file: every fault at once, each with its line; one fault and nothing loads."""

from __future__ import annotations

import os
import tomllib
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from jsonschema import Draft202012Validator

from ledger.tools.contract import Tool
from ledger.tools.definitions import Builder, defined
from ledger.tools.drill import Drill
from ledger.tools.faults import DefinitionError, Fault, InvalidTools
from ledger.tools.fileschema import FILE
from ledger.tools.lines import Lines, syntax_line
from ledger.tools.sandbox import faults_of, shared
from ledger.tools.shapes import odd_values, shape_faults

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
    faults = [*odd_values(document), *shape_faults(document, _SHAPE)]
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
