"""What a tool declares about being drilled: example args, and what leads to its sandbox."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from ledger.tools.faults import DefinitionError

# Stands for twelve characters that are new for each drill, in any text of the example args.
MARK = "{drill}"
ENV = re.compile(r"^env:([A-Za-z_][A-Za-z0-9_]*)$")
_VARIABLE = re.compile(r"^[A-Za-z_][A-Za-z0-9_]*$")


@dataclass(frozen=True, slots=True)
class Drill:
    """What a drill of a tool needs.

    `environment` names, for each variable that leads to production, the one that leads to the
    sandbox, as `env:NAME`. `base_url` and `check` are for tools of the tools file: a tool in
    Python reads its addresses from the environment, and checks with a method `check`.
    """

    args: Mapping[str, Any]
    environment: Mapping[str, str] = field(default_factory=dict)
    base_url: str = ""
    check: Mapping[str, Any] | None = None

    def args_for(self, name: str) -> Any:
        """The example args of the drill `name`."""
        return _filled(self.args, name)

    def with_args(self, args: Any) -> Drill:
        """The same declaration with other args."""
        return replace(self, args=args)

    def swaps(self) -> dict[str, str]:
        """Variable of production → variable of the sandbox. Raises DefinitionError."""
        return {name: _other(name, text) for name, text in self.environment.items()}


def _other(variable: str, text: str) -> str:
    at = ("environment", variable)
    if not _VARIABLE.match(variable):
        raise DefinitionError(f"{variable!r} is no name of a variable", at)
    named = ENV.match(text)
    if named is None:
        raise DefinitionError('write "env:NAME": the value belongs in the environment', at)
    if named.group(1) == variable:
        raise DefinitionError(f"{variable} is what production uses: name another one", at)
    return named.group(1)


def _filled(node: Any, name: str) -> Any:
    if isinstance(node, str):
        return node.replace(MARK, name)
    if isinstance(node, Mapping):
        return {key: _filled(child, name) for key, child in node.items()}
    if isinstance(node, list | tuple):
        return [_filled(child, name) for child in node]
    return node
