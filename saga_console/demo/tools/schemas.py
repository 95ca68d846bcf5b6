"""The args of the demo's tools: a few named texts."""

from __future__ import annotations

from typing import Any


def text(**fields: str) -> dict[str, Any]:
    """A JSON Schema of required string fields, each with its title."""
    return {
        "type": "object",
        "required": list(fields),
        "additionalProperties": False,
        "properties": {
            name: {"type": "string", "minLength": 1, "title": title}
            for name, title in fields.items()
        },
    }
