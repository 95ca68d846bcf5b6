"""A proposal after every check that needs no lock: validated, filled, named and digested."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from ledger import errors, keys, storage
from ledger.bearer import Bearer
from ledger.reasons import needed
from ledger.rows import Variant
from ledger.services.proposals import Proposal
from ledger.tools.contract import Tool
from ledger.tools.installed import registry

# Of an archived step that holds its effect no more, nobody knows what that was.
_REPEATED = """
SELECT tool, effect_key FROM ledger_step WHERE id = %(step)s
UNION ALL
SELECT s.tool, c.key FROM ledger_steptombstone s
    LEFT JOIN ledger_claimtombstone c ON c.step_id = s.id WHERE s.id = %(step)s LIMIT 1
"""


@dataclass(frozen=True, slots=True)
class Prepared:
    """What will be stored. `claim` is the effect key to claim, '' when the tool has none.

    `bearer` is who may propose it: for another it is to be prepared anew.
    """

    proposal: Proposal
    bearer: Bearer
    tool: Tool
    args: dict[str, Any]
    variant: Variant
    claim: str
    skeleton: str
    alternatives: tuple[Variant, ...]

    @property
    def fingerprint(self) -> str:
        return self.variant.fingerprint

    def matches(self, prior: Any) -> bool:
        """Whether a recorded step is the same step: its tool and its canonical args."""
        return bool(prior.tool == self.tool.key and prior.fingerprint == self.fingerprint)

    def columns(self) -> dict[str, Any]:
        """The parameters of `proposing_sql.INSERT_STEP` that the proposal decides."""
        return {
            "step_id": self.proposal.step_id,
            "tool": self.tool.key,
            "tool_version": self.tool.version,
            "tool_digest": self.tool.digest,
            "definition": self.tool.definition_text,
            "tier": self.tool.tier,
            "blast_radius": self.tool.blast_radius,
            "args_text": self.variant.args_text,
            "fingerprint": self.fingerprint,
            "idempotency_key": self.variant.idempotency_key,
            "effect_key": self.claim,
            "resource": self.variant.resource,
            "reason": self.proposal.reason,
            "repeat_of": self.proposal.repeat_of,
            "alternatives": json.dumps([other.stored() for other in self.alternatives]),
        }


def prepare(saga_id: UUID, proposal: Proposal, *, bearer: Bearer, place: str = "") -> Prepared:
    """Check a proposal against its tool. Raises UnknownTool, Forbidden, InvalidArgs.

    `place` is the JSON Pointer of the proposal in what was sent.
    """
    with errors.below(place):
        tool = _tool(proposal.tool, bearer)
        args = tool.checked_args(proposal.args)
        variant = _variant(saga_id, proposal, tool, args, 0)
        claim = _claim(proposal, variant.effect_key)
    alternatives = []
    for index, other in enumerate(proposal.alternatives):
        with errors.below(f"{place}/alternatives/{index}"):
            found = _tool(other.tool, bearer)
            filled = found.checked_args(other.args)
            alternatives.append(_variant(saga_id, proposal, found, filled, index + 1))
        _keep_version(found)
    return Prepared(
        proposal=proposal,
        bearer=bearer,
        tool=tool,
        args=args,
        variant=variant,
        claim=claim,
        skeleton=keys.claim_skeleton(claim),
        alternatives=tuple(alternatives),
    )


def _variant(
    saga_id: UUID, proposal: Proposal, tool: Tool, args: dict[str, Any], index: int
) -> Variant:
    args_text = keys.canonical(args)
    return Variant(
        index=index,
        tool=tool.key,
        tool_digest=tool.digest,
        tool_version=tool.version,
        tier=tool.tier,
        blast_radius=tool.blast_radius,
        args_text=args_text,
        fingerprint=keys.fingerprint(args_text),
        idempotency_key=keys.downstream_key(str(saga_id), proposal.step_id, tool.key, args_text),
        resource=tool.resource_for(args) or "",
        verdict="",
        effect_key=tool.effect_key_for(args) or "",
    )


def _keep_version(tool: Tool) -> None:
    """Keep an alternative's definition too: it may be run, and undone, much later."""
    storage.execute(
        "INSERT INTO ledger_toolversion (digest, key, version, definition, first_seen_at) "
        "VALUES (%s, %s, %s, %s::jsonb, clock_timestamp()) ON CONFLICT (digest) DO NOTHING",
        [tool.digest, tool.key, tool.version, tool.definition_text],
    )


def _tool(key: str, bearer: Bearer) -> Tool:
    if not bearer.is_agent:
        raise errors.Forbidden("Only an agent's token can propose steps.")
    if not bearer.may_use(key):
        raise errors.Forbidden(
            f"This token may not use the tool {key!r}. Its patterns are {', '.join(bearer.tools)}."
        )
    return registry().get(key)


def _claim(proposal: Proposal, effect_key: str) -> str:
    """The key to claim. A deliberate repeat claims beside the effect that it repeats."""
    if proposal.repeat_of is None:
        return effect_key
    needed(proposal.reason, why="repeat_of asks for a second effect, so say why it is wanted")
    first = storage.row(_REPEATED, {"step": proposal.repeat_of})
    if first is None or first.tool != proposal.tool:
        raise errors.InvalidArgs(
            f"repeat_of names no step of the tool {proposal.tool!r}: give the id of the step whose "
            "effect is to be made a second time.",
            errors=[{"pointer": "/repeat_of", "detail": "no such step of this tool"}],
        )
    repeated = keys.repeated_effect(first.effect_key or "")
    if repeated and effect_key and repeated != effect_key:
        raise errors.InvalidArgs(
            f"repeat_of names a step whose effect is {repeated!r}, and with these arguments it "
            f"would be {effect_key!r}: that is no repeat. Leave repeat_of out, or name the step "
            "that had this effect.",
            errors=[{"pointer": "/repeat_of", "detail": "another effect"}],
        )
    return keys.repeat_claim(proposal.repeat_of, effect_key)
