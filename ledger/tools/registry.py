"""Every tool this process knows, from Python modules and the tools file alike."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from types import ModuleType
from typing import Any

from ledger.errors import UnknownTool
from ledger.states import Direction
from ledger.tools import toolsfile
from ledger.tools.contract import Tool
from ledger.tools.definitions import ACTIONS, Builder
from ledger.tools.faults import Fault, InvalidTools
from ledger.tools.python import tools_in


class Registry:
    """Tools by key. Never changes once made."""

    def __init__(self, tools: Iterable[Tool], environ: Mapping[str, str] = os.environ) -> None:
        self._tools: dict[str, Tool] = {}
        self._environ = environ
        faults = []
        for tool in tools:
            first = self._tools.setdefault(tool.key, tool)
            if first is not tool:  # the same class imported into two modules is one tool
                where = f"{_origin(first)} and {_origin(tool)}"
                faults.append(Fault(tool.key, f"is declared twice: in {where}"))
        if faults:
            raise InvalidTools(faults)

    def get(self, key: str) -> Tool:
        """The tool `key`; UnknownTool (422) when this process has none."""
        try:
            return self._tools[key]
        except KeyError:
            raise UnknownTool(
                f"No tool {key!r} is registered here. GET /api/v1/tools lists those that are.",
                tool=key,
            ) from None

    def __contains__(self, key: str) -> bool:
        return key in self._tools

    def all(self) -> list[Tool]:
        """Every tool, by key."""
        return sorted(self._tools.values(), key=lambda tool: tool.key)

    def rebuild(self, definition: Mapping[str, Any]) -> Tool | None:
        """The file tool of a step's snapshot, so that an old saga is undone as it was done.

        None for a Python tool (code cannot be rebuilt), and for a definition that this version
        or environment no longer accepts, a secret that is gone for example.
        """
        if definition.get("source") != "file":
            return None
        try:
            return Builder(dict(definition), self._environ).build()
        except (KeyError, TypeError, ValueError, AttributeError):
            return None


def directions_of(definition: Mapping[str, Any]) -> frozenset[Direction] | None:
    """What the tool of a step's snapshot was able to do, whatever this process knows of it.

    None where the snapshot does not say: earlier releases did not write it for Python tools.
    """
    if definition.get("source") == "file":
        return frozenset(d for name, d in ACTIONS.items() if name in definition)
    told = definition.get("directions")
    return None if told is None else frozenset(Direction(one) for one in told)


def _origin(tool: Tool) -> str:
    return str(tool.definition.get("module", "the tools file"))


def load(
    path: str | os.PathLike[str] | None,
    modules: Iterable[ModuleType] = (),
    environ: Mapping[str, str] = os.environ,
) -> Registry:
    """The registry of a tools file (or none) and of Python modules. Raises InvalidTools."""
    tools = [tool for module in modules for tool in tools_in(module)]
    if path:
        tools += toolsfile.read(path, environ)
    return Registry(tools, environ)
