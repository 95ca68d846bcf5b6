"""The shape of the policy file, as JSON Schema: every key, its type and its bounds."""

from __future__ import annotations

from typing import Any

from ledger.states import BlastRadius, Direction, Tier

# Names become columns and lines of a page; a rule that failed is told with a few words more.
_NAME = {"type": "string", "minLength": 1, "maxLength": 120, "pattern": r"^[^\x00-\x1f\x7f]+$"}
_GLOB = {"type": "string", "minLength": 1, "maxLength": 200}
_GROUP = {"type": "string", "minLength": 1, "maxLength": 150}  # as Django's auth has it
_TIME = {"type": "string"}
_SOURCE = {"type": "string", "minLength": 1}

NEED: dict[str, Any] = {
    "type": "object",
    "required": ["group", "count"],
    "additionalProperties": False,
    "properties": {
        "group": _GROUP,
        # More people than this are no quorum but a mistake.
        "count": {"type": "integer", "minimum": 1, "maximum": 20},
    },
}

# What only a question to people has.
TERMS: dict[str, Any] = {
    "need": {"type": "array", "minItems": 1, "maxItems": 10, "items": NEED},
    "expires": _TIME,
    "escalate_to": _GROUP,
    "remind": _TIME,
    "require_reason": {"type": "boolean"},
    "delay": _TIME,
}

RULE: dict[str, Any] = {
    "type": "object",
    "required": ["name", "verdict"],
    "additionalProperties": False,
    "properties": {
        "name": _NAME,
        "tool": _GLOB,
        "agent": _GLOB,
        "tier": {"enum": [str(tier) for tier in Tier]},
        "blast_radius": {"enum": [str(radius) for radius in BlastRadius]},
        "direction": {"enum": [str(direction) for direction in Direction]},
        "when": _SOURCE,
        "verdict": {"enum": ["allow", "ask", "deny"]},
        **TERMS,
    },
}

LIMIT: dict[str, Any] = {
    "type": "object",
    "required": ["name", "by", "per", "max", "over"],
    "additionalProperties": False,
    "properties": {
        "name": _NAME,
        "tool": _GLOB,
        "agent": _GLOB,
        "sum": _SOURCE,
        "count": {"const": True},
        "by": {"enum": ["agent", "tool", "everyone"]},
        "per": _TIME,
        "max": {"type": "number", "minimum": 0},
        "over": {"enum": ["ask", "deny"]},
    },
}

FILE: dict[str, Any] = {
    "type": "object",
    "additionalProperties": False,
    "properties": {
        "rule": {"type": "array", "items": RULE},
        "limit": {"type": "array", "items": LIMIT},
    },
}
