"""Which code may run for a step that was proposed under an earlier version of its tool."""

from __future__ import annotations

import functools
import json
from dataclasses import dataclass
from typing import Any

from ledger import storage
from ledger.errors import InvalidArgs, UnknownTool
from ledger.rows import StepRow, Variant
from ledger.states import Direction
from ledger.tools.contract import Tool, digest_of
from ledger.tools.installed import recorded_directions, registry
from ledger.tools.schemas import Schema


@dataclass(frozen=True, slots=True)
class Parked:
    """The step must wait: `why` says for what, in a sentence for operators.

    `changed_to` is the digest of today's code when only its name is the same; `misfit` says why
    that code cannot run it (it has no such direction, or a schema that the stored args do not
    fit), or ''.
    """

    why: str
    changed_to: str = ""
    version: str = ""
    misfit: str = ""

    @property
    def may_be_confirmed(self) -> bool:
        """Whether a person's yes to today's code is all that is missing."""
        return bool(self.changed_to) and not self.misfit


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
    definition = _definition(digest)
    return None if definition is None else registry().rebuild(definition)


def _definition(digest: str) -> dict[str, Any] | None:
    """A tool as it was recorded. One that was changed behind the ledger is not what was."""
    found = storage.row(
        "SELECT definition::text AS definition FROM ledger_toolversion WHERE digest = %s", [digest]
    )
    told: dict[str, Any] = {} if found is None else json.loads(found.definition)
    try:
        return told if digest_of(told) == digest else None
    except InvalidArgs:  # a number in it (1e23) comes back from Postgres as another
        return None


def can_correct(variant: Variant) -> bool | None:
    """Whether its tool had a correction when the step was proposed; None when nobody knows."""
    digest = variant.tool_digest
    directions = recorded_directions(variant.tool, digest, _definition(digest))
    return None if directions is None else Direction.CORRECT in directions


def target_dedupes(variant: Variant) -> bool:
    """Whether the step's target makes one effect of all that comes under one key, as recorded."""
    return bool((_definition(variant.tool_digest) or {}).get("downstream_idempotent"))


def tool_to_run(step: StepRow, direction: Direction) -> Tool | Parked:
    """The tool that may run this direction of a step now, or why it must wait (cases C14, C55,
    C111)."""
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
        if direction in current.target.directions:
            return current
    return _changed(variant, current, direction)


def other_stakes(variant: Variant, tool: Tool) -> str:
    """What another version of its tool would mean for a step, in sentences; '' when the same."""
    then_now = {
        "tier": (variant.tier, tool.tier),
        "blast radius": (variant.blast_radius, tool.blast_radius),
    }
    return " ".join(
        f"Its {what} is {now} now and was {then}."
        for what, (then, now) in then_now.items()
        if then != now
    )


def _changed(variant: Variant, current: Tool, direction: Direction) -> Parked:
    """The wait for a person's yes to code that has changed under a step."""
    versions = (
        f"version {variant.tool_version} then, {current.version} now"
        if variant.tool_version != current.version
        else f"both are called version {current.version}, but the code differs"
    )
    why = f"The tool {variant.tool} has changed since the step was proposed ({versions})."
    if direction not in current.target.directions:
        misfit = f"It has no {direction} now."
        then = "Skip it, or answer for the step by hand."
        return Parked(f"{why} {misfit} {then}", current.digest, current.version, misfit)
    if direction == Direction.FORWARD and (stakes := other_stakes(variant, current)):
        why += f" {stakes} Under it the step goes through the gate again."
    try:
        current.checked_args(variant.args)
    except InvalidArgs as error:
        misfit = f"The recorded arguments do not fit its new schema. {error.detail}"
        then = "Try again with other arguments, or answer for the step by hand."
    else:
        misfit = ""
        then = "Confirm that it may run under the new code, or answer for the step by hand."
    return Parked(
        f"{why} {misfit} {then}".replace("  ", " "), current.digest, current.version, misfit
    )


def check_result(variant: Variant, result: object) -> None:
    """A person's word for what the tool answered must fit the schema that the step ran under.

    Raises InvalidArgs with a pointer for each fault; a tool without a schema takes anything.
    """
    found = storage.the_row(
        "SELECT definition -> 'result' AS schema FROM ledger_toolversion WHERE digest = %s",
        [variant.tool_digest],
    )
    faults = Schema(found.schema).faults(result) if found.schema else []
    if not faults:
        return
    told = [{**fault, "pointer": f"/result{fault['pointer']}"} for fault in faults[:20]]
    raise InvalidArgs(
        f"The result is not what {variant.tool} answers. At {told[0]['pointer']}: "
        f"{told[0]['detail']}",
        errors=told,
    )
