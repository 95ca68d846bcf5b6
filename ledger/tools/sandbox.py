"""A tool aimed at its declared sandbox, and at nothing else.

A tool of the tools file is built again with every address replaced and every secret swapped. A
tool in Python runs in a process of its own that has never heard of production
(ledger/tools/apart.py). What cannot be kept away from production is refused, never tried
(docs/decisions/0061-a-sandbox-is-another-address.md).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any
from urllib.parse import urlsplit

from ledger.errors import InvalidArgs
from ledger.outcomes import Sighting
from ledger.states import Direction
from ledger.tools.apart import ApartTarget
from ledger.tools.contract import Call, Tool
from ledger.tools.definitions import ACTIONS, Builder, check_url
from ledger.tools.drill import ENV, Drill
from ledger.tools.faults import DefinitionError
from ledger.tools.http import HttpTarget, looked

_PORTS = {"http": 80, "https": 443}
# Names of a machine for itself: a sandbox on one of them is production on another.
_LOOPBACK = frozenset({"localhost", "::1", "0.0.0.0", "::"})  # noqa: S104
Place = tuple[str, int]


class NotDrillable(Exception):
    """Why a tool cannot be drilled here and now, in one sentence that says what to declare."""


@dataclass(frozen=True, slots=True)
class Sandboxed:
    """A tool that reaches its sandbox only. `address` is what people are told of it."""

    tool: Tool
    address: str
    check: Callable[[Call], Sighting] | None = None


def undo_of(tool: Tool) -> Direction | None:
    """What a drill of this tool exercises: its compensation, else its correction."""
    if tool.can_compensate:
        return Direction.COMPENSATE
    return Direction.CORRECT if tool.can_correct else None


def sandboxed(tool: Tool, environ: Mapping[str, str] = os.environ) -> Sandboxed:
    """The tool, aimed at its sandbox. Raises NotDrillable."""
    is_file = tool.definition.get("source") == "file"
    if undo_of(tool) is None:
        raise NotDrillable(f"{tool.key} has neither compensate nor correct: nothing to drill.")
    if tool.drill is None:
        where = f'[tools."{tool.key}".drill] with base_url and args to the tools file'
        how = where if is_file else "drill=Drill(args=…, environment=…) to its @tool"
        raise NotDrillable(f"{tool.key} declares no sandbox: add {how}.")
    values = _swapped(tool.drill, environ)
    return _of_file(tool, tool.drill, environ) if is_file else _of_python(tool, values)


def _swapped(drill: Drill, environ: Mapping[str, str]) -> dict[str, str]:
    """Variable of production → value of the sandbox.

    A value that both share would send the drill to production, or show the sandbox a secret.
    """
    values = {}
    for variable, other in drill.swaps().items():
        value, given = environ.get(other, "").strip(), environ.get(variable, "").strip()
        if not value:
            raise NotDrillable(f"The environment variable {other}, for the sandbox, is not set.")
        if value == given or (_place(value) and _place(value) == _place(given)):
            raise NotDrillable(f"{other} says the same as {variable}: that is production.")
        values[variable] = value
    return values


def _of_file(tool: Tool, drill: Drill, environ: Mapping[str, str]) -> Sandboxed:
    aimed = _aimed(tool.definition, drill)
    builder = Builder(aimed, environ)
    built = builder.build()
    check = builder.check(_aimed_node(drill.check, drill)) if drill.check else None
    if built is None or builder.faults:
        raise NotDrillable(
            f"{tool.key} cannot be aimed at its sandbox: {builder.faults[0].reason}."
        )
    target = built.target
    assert isinstance(target, HttpTarget)
    for action in [*target.actions.values(), *target.probes.values(), *([check] if check else [])]:
        # The last lock, on what will really be sent: everything goes to the sandbox.
        if not str(action.url.parts[0]).startswith(drill.base_url.rstrip("/") + "/"):
            raise NotDrillable(f"{tool.key} would call {action.url.parts[0]}, not its sandbox.")
    look = partial(looked, check) if check else None
    return Sandboxed(replace(tool, target=target), drill.base_url, look)


def _of_python(tool: Tool, values: Mapping[str, str]) -> Sandboxed:
    target = ApartTarget(tool.key, tool.digest, tool.definition["module"], values, tool.target)
    addresses = sorted(value for value in values.values() if _place(value))
    told = ", ".join(addresses) or ", ".join(sorted(values))
    return Sandboxed(replace(tool, target=target), told, target.check if target.can_check else None)


def _aimed(definition: Mapping[str, Any], drill: Drill) -> dict[str, Any]:
    """The definition with every request of it aimed at the sandbox."""
    aimed = dict(definition)
    for name in ("probe", *ACTIONS):
        if name in definition:
            aimed[name] = _aimed_node(definition[name], drill)
    return aimed


def _aimed_node(node: Mapping[str, Any], drill: Drill) -> dict[str, Any]:
    aimed = {**node, "url": _moved(node["url"], drill.base_url)}
    if "headers" in node:
        swaps = drill.swaps()
        aimed["headers"] = {name: _header(text, swaps) for name, text in node["headers"].items()}
    if "probe" in node:
        aimed["probe"] = _aimed_node(node["probe"], drill)
    return aimed


def _moved(url: str, base: str) -> str:
    _, _, rest = url.partition("://")
    end = next((i for i, character in enumerate(rest) if character in "/?"), len(rest))
    path = rest[end:]
    return base.rstrip("/") + (path if path.startswith("/") else f"/{path}")


def _header(text: str, swaps: Mapping[str, str]) -> str:
    variable = ENV.match(text)
    return f"env:{swaps[variable.group(1)]}" if variable else text


def _place(url: str) -> Place | None:
    """Host and port, the same for all spellings of an address; None when it is none."""
    try:
        parts = urlsplit(url if "://" in url else f"//{url}")
        host, port = (parts.hostname or "").rstrip("."), parts.port or _PORTS.get(parts.scheme, 0)
    except ValueError:
        return None
    if not host or not port:
        return None
    return ("loopback" if host in _LOOPBACK or host.startswith("127.") else host, port)


def _requests(definition: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    for name in ("probe", *ACTIONS):
        if name in definition:
            yield name, definition[name]
            if "probe" in definition[name]:
                yield f"{name}.probe", definition[name]["probe"]


def faults_of(tool: Tool, drill: Drill) -> Iterator[DefinitionError]:
    """What is wrong with a declaration; paths lead on from it."""
    if undo_of(tool) is None:
        yield DefinitionError("there is neither compensate nor correct: nothing to drill")
        return
    try:
        swaps = drill.swaps()
    except DefinitionError as error:
        yield error
        return
    try:
        tool.checked_args(drill.args_for("0" * 12))
    except InvalidArgs as error:
        one = next(iter(error.extra.get("errors", ())), None)
        said = f"{one['pointer']}: {one['detail']}" if one else error.detail
        yield DefinitionError(f"the example args do not fit: {said}", ("args",))
    if tool.definition.get("source") == "file":
        yield from _faults_of_file(tool.definition, drill, swaps)
    elif not swaps:
        yield DefinitionError(
            "name in environment what leads to the sandbox: code that carries its address in "
            "itself cannot be kept away from production",
            ("environment",),
        )


def _faults_of_file(
    definition: Mapping[str, Any], drill: Drill, swaps: Mapping[str, str]
) -> Iterator[DefinitionError]:
    try:
        check_url(drill.base_url)
        if "?" in drill.base_url or "{" in drill.base_url:
            raise DefinitionError("a base URL has neither a query nor placeholders")
    except DefinitionError as error:
        yield DefinitionError(error.reason, ("base_url",))
    requests = [*_requests(definition)]
    if drill.check:
        requests.append(("drill.check", drill.check))
    secrets = {
        named.group(1): f"{name}.headers.{header}"
        for name, node in requests
        for header, text in node.get("headers", {}).items()
        if (named := ENV.match(text))
    }
    for variable in sorted(secrets.keys() - swaps):
        why = (
            f"{variable} ({secrets[variable]}) would be shown to the sandbox: name its counterpart"
        )
        yield DefinitionError(why, ("environment",))
    for variable in sorted(swaps.keys() - secrets):
        why = f"{variable} is in no header of this tool, so swapping it does nothing"
        yield DefinitionError(why, ("environment", variable))


def shared(tools: Iterable[Tool]) -> Iterator[tuple[Tool, str]]:
    """(tool, key): its sandbox is where the tool `key`, perhaps another one, really runs."""
    tools = list(tools)
    production = {
        _place(node["url"]): tool.key
        for tool in tools
        for _, node in _requests(tool.definition)
        if tool.definition.get("source") == "file"
    }
    for tool in tools:
        where = _place(tool.drill.base_url) if tool.drill else None
        if where is not None and where in production:
            yield tool, production[where]
