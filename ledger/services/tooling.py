"""Which code may run for a step that was proposed under an earlier version of its tool."""

from __future__ import annotations

import functools
import json
from dataclasses import dataclass

from ledger import storage
from ledger.errors import UnknownTool
from ledger.rows import StepRow, Variant
from ledger.tools.contract import Tool
from ledger.tools.installed import registry


@dataclass(frozen=True, slots=True)
class Parked:
    """The step must wait: `why` says for what, in a sentence for operators."""

    why: str


def recorded_tool(variant: Variant) -> Tool | None:
    """The tool exactly as it was when the step was proposed, or None.

    A tool of the tools file is built again from its recorded definition, so that an old
    saga is undone by what it ran under; Python code can only be what is installed now.
    """
    try:
        current = registry().get(variant.tool)
    except UnknownTool:
        current = None
    if current is not None and current.digest == variant.tool_digest:
        return current
    return _rebuilt(variant.tool_digest)


@functools.lru_cache(maxsize=256)
def _rebuilt(digest: str) -> Tool | None:
    found = storage.row(
        "SELECT definition::text AS definition FROM ledger_toolversion WHERE digest = %s", [digest]
    )
    tool = None if found is None else registry().rebuild(json.loads(found.definition))
    # A definition that was changed behind the ledger is not the one that was recorded.
    return tool if tool is not None and tool.digest == digest else None


def tool_to_run(step: StepRow) -> Tool | Parked:
    """The tool that may run this step now, or why it must wait (cases C14, C55, C111)."""
    variant = step.variant
    recorded = recorded_tool(variant)
    if recorded is not None:
        return recorded
    try:
        current = registry().get(variant.tool)
    except UnknownTool:
        return Parked(
            f"The tool {variant.tool} is not registered on this worker. Start a worker that has "
            "it, or answer for the step by hand."
        )
    declared = {variant.tool_version, variant.tool_digest}
    if current.compatible_with & declared or step.confirmed_tool == current.digest:
        return current
    return Parked(
        f"The tool {variant.tool} has changed since the step was proposed (version "
        f"{variant.tool_version} then, {current.version} now). Confirm with retry that it may "
        "run under the new code, or answer for the step by hand."
    )
