"""Arguments as they may be shown: masked by the schema of the very tool they are for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ledger.masking import redact
from ledger.models import ToolVersion
from ledger.tools.installed import registry

# A version is never changed once it is kept, so what was read of one stays right.
_schemas: dict[str, Mapping[str, Any]] = {}


def args_of(args: Mapping[str, Any], tool: str, digest: str = "") -> dict[str, Any]:
    """A copy of a tool's args without what is secret in them.

    `digest` names the version that they were checked by; an alternative's is not always kept,
    then today's tool says what is secret.
    """
    shown: dict[str, Any] = redact(args, schema_of(tool, digest))
    return shown


def payload_of(payload: Mapping[str, Any]) -> dict[str, Any]:
    """What an entry says, without what is secret in the args that it tells of.

    For pages. The entry itself keeps all of it: its hash is over what was written.
    """
    shown: dict[str, Any] = redact(payload)
    args, tool = payload.get("args"), payload.get("tool")
    if isinstance(args, Mapping) and isinstance(tool, str):
        shown["args"] = args_of(args, tool, str(payload.get("tool_digest", "")))
    return shown


def schema_of(tool: str, digest: str = "") -> Mapping[str, Any] | None:
    """The JSON Schema of a tool's args; None when neither a snapshot nor a tool is there."""
    if digest and digest not in _schemas:
        kept = ToolVersion.objects.filter(pk=digest).first()
        found = kept.definition.get("args") if kept is not None else None
        if isinstance(found, Mapping):
            _schemas[digest] = found
    if digest in _schemas:
        return _schemas[digest]
    if tool in registry():
        return registry().get(tool).args_schema
    newest = ToolVersion.objects.filter(key=tool).order_by("-first_seen_at").first()
    return newest.definition.get("args") if newest is not None else None
