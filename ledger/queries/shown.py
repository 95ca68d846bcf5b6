"""Arguments as they may be shown: masked by the schema of the very tool they are for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from uuid import UUID

from ledger.errors import InvalidArgs
from ledger.masking import MASK, StillMasked, redact, unmasked
from ledger.models import Step, ToolVersion
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


def args_meant(sent: Any, bound: Mapping[str, Any], tool: str, digest: str = "") -> Any:
    """What somebody means who was shown `bound` by `args_of` and sends this. Raises InvalidArgs."""
    try:
        return unmasked(sent, args_of(bound, tool, digest), bound)
    except StillMasked:
        raise InvalidArgs(
            f"A secret is still masked ({MASK}) at a place where it was not before. Leave that "
            "part exactly as it was, or write the secret itself.",
            errors=[{"pointer": "/args", "detail": f"contains {MASK}"}],
        ) from None


def payload_of(payload: Mapping[str, Any], saga: UUID, step_id: str) -> dict[str, Any]:
    """What an entry of this step says, without what is secret in the args that it tells of.

    For pages. The entry itself keeps all of it: its hash is over what was written.
    """
    told = [part for part in (payload, payload.get("was")) if isinstance(part, Mapping)]
    shown: dict[str, Any] = redact(payload)
    if not any(isinstance(part.get("args"), Mapping) for part in told):
        return shown
    tool, digest = _tool_of(payload, saga, step_id)
    for part, copy in zip(told, (shown, shown.get("was")), strict=False):
        if isinstance(part.get("args"), Mapping) and copy is not None:
            copy["args"] = args_of(part["args"], tool, digest)
    return shown


def _tool_of(payload: Mapping[str, Any], saga: UUID, step_id: str) -> tuple[str, str]:
    """The tool that an entry names with its args, or else that of its step."""
    if isinstance(payload.get("tool"), str):
        return payload["tool"], str(payload.get("tool_digest", ""))
    step = Step.objects.filter(saga=saga, step_id=step_id).first()
    if step is None:
        return "", ""
    # The args of an alternative are those of another tool, which its snapshot names.
    chosen = payload.get("alternative", step.alternative)
    if 0 < chosen <= len(step.alternatives):
        other = step.alternatives[chosen - 1]
        return other["tool"], other.get("tool_digest", "")
    return step.tool, step.tool_version_id


def definition_of(tool: str, digest: str) -> Mapping[str, Any] | None:
    """What was declared of a tool under this digest; None when nobody has kept it."""
    kept = ToolVersion.objects.filter(pk=digest).first()
    if kept is not None:
        declared: Mapping[str, Any] = kept.definition
        return declared
    now = registry().get(tool) if tool in registry() else None
    return now.definition if now is not None and now.digest == digest else None


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
