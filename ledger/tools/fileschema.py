"""The shape of the tools file, as JSON Schema: every field, its type and its bounds."""

from __future__ import annotations

from typing import Any

from ledger.states import BlastRadius, Tier

_TEXT = {"type": "string", "minLength": 1}
_SECONDS = {"type": "number", "exclusiveMinimum": 0, "maximum": 31_536_000}
_TOKEN = "^[!#$%&'*+.^_`|~0-9A-Za-z-]+$"  # noqa: S105 - RFC 9110, 5.6.2: a header's name

_REQUEST: dict[str, Any] = {
    "method": {"enum": ["GET", "POST", "PUT", "PATCH", "DELETE"]},
    "url": _TEXT,
    "headers": {
        "type": "object",
        "propertyNames": {"pattern": _TOKEN},
        "additionalProperties": {"type": "string"},
    },
    "form": {"type": "object", "additionalProperties": {"type": ["string", "number", "boolean"]}},
    "json": {},
}


def _action(**more: Any) -> dict[str, Any]:
    return {
        "type": "object",
        "required": ["method", "url"],
        "properties": {**_REQUEST, **more},
        "additionalProperties": False,
    }


# PUT, PATCH and DELETE change things; a probe only looks (POST is how some targets search).
_PROBE = _action(method={"enum": ["GET", "HEAD", "POST"]}, match=_TEXT)

_DRILL: dict[str, Any] = {
    "type": "object",
    "required": ["base_url", "args"],
    "additionalProperties": False,
    "properties": {
        "base_url": _TEXT,
        "args": {"type": "object"},
        "environment": {"type": "object", "additionalProperties": {"type": "string"}},
        "check": _PROBE,
    },
}

DEFAULTS: dict[str, Any] = {
    "effect_key": None,
    "resource": None,
    "timeout_s": 10.0,
    "retries": 5,
    "downstream_idempotent": False,
    "idempotent_for_s": 86400,
    "settle_s": 30.0,
    "compatible_with": [],
}

TOOL: dict[str, Any] = {
    "type": "object",
    "required": ["version", "tier", "blast_radius", "args", "execute"],
    "additionalProperties": False,
    "properties": {
        "title": _TEXT,
        "version": _TEXT,
        "tier": {"enum": [str(tier) for tier in Tier]},
        "blast_radius": {"enum": [str(radius) for radius in BlastRadius]},
        "effect_key": _TEXT,
        "resource": _TEXT,
        # A worker's lease covers the timeout; an hour is already a very patient call.
        "timeout_s": {"type": "number", "exclusiveMinimum": 0, "maximum": 3600},
        "retries": {"type": "integer", "minimum": 0, "maximum": 1000},
        "downstream_idempotent": {"type": "boolean"},
        "idempotent_for_s": _SECONDS,
        "settle_s": {**_SECONDS, "exclusiveMinimum": -1, "minimum": 0},
        "compatible_with": {"type": "array", "items": _TEXT},
        "args": {"type": "object"},
        "result": {"type": "object"},
        "execute": _action(),
        "probe": _PROBE,
        "compensate": _action(probe=_PROBE, gone_is_done={"type": "boolean"}),
        "correct": _action(probe=_PROBE),
        "drill": _DRILL,
    },
}

FILE: dict[str, Any] = {
    "type": "object",
    "additionalProperties": False,
    "properties": {
        "tools": {
            "type": "object",
            "propertyNames": {"pattern": r"^[A-Za-z0-9][A-Za-z0-9_-]*(\.[A-Za-z0-9_-]+)*$"},
            "additionalProperties": TOOL,
        }
    },
}
