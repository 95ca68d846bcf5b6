"""Arguments as they may be shown: masked by the schema of the very tool they are for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ledger.masking import redact
from ledger.models import ToolVersion
from ledger.tools.installed import registry


def args_of(args: Mapping[str, Any], tool: str, digest: str = "") -> dict[str, Any]:
    """A copy of a tool's args without what is secret in them.

    `digest` names the version that they were checked by; an alternative's is not always kept,
    then today's tool says what is secret.
    """
    shown: dict[str, Any] = redact(args, schema_of(tool, digest))
    return shown


def schema_of(tool: str, digest: str = "") -> Mapping[str, Any] | None:
    """The JSON Schema of a tool's args; None when neither a snapshot nor a tool is there."""
    kept = ToolVersion.objects.filter(pk=digest).first() if digest else None
    if kept is not None and isinstance(kept.definition.get("args"), Mapping):
        found: Mapping[str, Any] = kept.definition["args"]
        return found
    return registry().get(tool).args_schema if tool in registry() else None
