"""Tools files and calls that several tests need, as short as they can be."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ledger.states import Direction
from ledger.tools.contract import Call, Tool
from ledger.tools.toolsfile import parsed

ARGS = """
[tools."t".args]
required = ["id"]
properties = { id = {}, amount = { type = "integer", default = 5 }, note = {}, deep = {} }
"""
HEAD = '[tools."t"]\nversion = "1"\ntier = "{tier}"\nblast_radius = "low"\n'


def tool_of(text: str, environ: Mapping[str, str] | None = None, tier: str = "pivot") -> Tool:
    """The tool `t` of a head, free args and the given execute, probe … tables."""
    (tool,) = parsed(HEAD.format(tier=tier) + ARGS + text, "tools.toml", environ or {})
    return tool


def execute(url: str, more: str = "", method: str = "POST") -> str:
    """An execute table."""
    return f'[tools."t".execute]\nmethod = "{method}"\nurl = "{url}"\n{more}\n'


def call(
    args: dict[str, Any] | None = None,
    direction: Direction = Direction.FORWARD,
    *,
    result: Any = None,
    timeout_s: float = 5.0,
    key: str = "key-1",
) -> Call:
    """A call as the engine would make it."""
    return Call(
        direction=direction,
        saga_id="s1",
        step_id="p1",
        args={"id": "a1"} if args is None else args,
        result=result,
        idempotency_key=key,
        saga={"id": "s1", "task_id": "task 7", "name": "demo", "metadata": {"env": "prod"}},
        step={"id": "p1", "step_id": "refund", "position": 2},
        timeout_s=timeout_s,
        attempt=1,
    )
