"""`bench.noop` gives its args back. Undoing it has nothing to undo."""

from __future__ import annotations

from typing import Any

from ledger.tools.contract import Call
from ledger.tools.python import tool


@tool(
    "bench.noop",
    title="Do nothing",
    version="1",
    tier="compensatable",
    blast_radius="low",
    args={
        "type": "object",
        "required": ["caller", "number"],
        "properties": {
            "caller": {"type": "string", "maxLength": 100},
            "number": {"type": "integer", "minimum": 0},
            "note": {"type": "string", "default": ""},
        },
    },
)
class Nothing:
    def execute(self, call: Call) -> Any:
        return call.args

    def compensate(self, call: Call) -> Any:
        return None
