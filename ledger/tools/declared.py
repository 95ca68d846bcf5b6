"""One leg of a tool as its author wrote it, for people who are asked whether it may run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ledger.masking import redact, redact_declared
from ledger.states import Direction
from ledger.tools.contract import Tool
from ledger.tools.http import WITH_BODY
from ledger.tools.python import PythonTarget

NAMES: Mapping[Direction, str] = {
    Direction.FORWARD: "execute",
    Direction.COMPENSATE: "compensate",
    Direction.CORRECT: "correct",
}


@dataclass(frozen=True, slots=True)
class DeclaredLeg:
    """`call` is `POST https://…` or `Python, module`. Templates are unfilled; secrets are names.

    `body_kind` is `form`, `json`, `args` (the arguments as JSON), `none`, or '' of Python code.
    """

    name: str
    call: str
    body_kind: str = ""
    body: Any = None
    headers: Mapping[str, str] = field(default_factory=dict)
    says: str = ""

    @property
    def request(self) -> dict[str, Any]:
        """Headers and body as the tools file has them; empty where it says nothing of them."""
        told: dict[str, Any] = {"headers": dict(self.headers)} if self.headers else {}
        return told if self.body is None else {**told, self.body_kind: self.body}


def leg_of(
    definition: Mapping[str, Any], direction: Direction, tool: Tool | None = None
) -> DeclaredLeg | None:
    """What a definition says of one direction, or None. `tool` is the code, where it is at hand."""
    name = NAMES[direction]
    if definition.get("module"):
        return DeclaredLeg(name, f"Python, {definition['module']}", says=_says(tool, direction))
    node = definition.get(name)
    if not node:
        return None
    method = node.get("method", "POST")
    kind = next((kind for kind in ("form", "json") if kind in node), "")
    return DeclaredLeg(
        name,
        f"{method} {redact(node['url'])}",
        kind or ("args" if method in WITH_BODY else "none"),
        redact_declared(node[kind]) if kind else None,
        redact_declared(node.get("headers", {})),
    )


def _says(tool: Tool | None, direction: Direction) -> str:
    code = tool.target if tool is not None else None
    return code.says(direction) if isinstance(code, PythonTarget) else ""
