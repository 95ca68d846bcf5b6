"""An operator's version of a step's arguments: it supersedes the old one, and overwrites nothing.

The old version stays in the ledger and in the step's own list of former versions, so that an
agent that proposes it again is recognised.
"""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

from ledger import errors, keys, storage
from ledger.doubt import has_open_doubt
from ledger.gate import Verdict, gate
from ledger.rows import SagaRow, StepRow, Variant
from ledger.services import forward
from ledger.services.asking import ask, judge_variant, tell_revised
from ledger.services.cases import Case
from ledger.services.proposing_sql import REJECTED
from ledger.services.remedies import settled
from ledger.services.unit import Superseded, Unit
from ledger.states import Direction, StepState
from ledger.tools.contract import Tool
from ledger.tools.installed import registry

# In `awaiting_approval`, where the database allows a new version (ledger/walls.py).
_SUPERSEDE = """
WITH version AS (
    INSERT INTO ledger_toolversion (digest, key, version, definition, first_seen_at)
    VALUES (%(tool_digest)s, %(tool)s, %(tool_version)s, %(definition)s::jsonb, clock_timestamp())
    ON CONFLICT (digest) DO NOTHING
)
UPDATE ledger_step SET
    revision = revision + 1, former = former || %(former)s::jsonb,
    tool_version_id = CASE WHEN alternative = 0 THEN %(tool_digest)s ELSE tool_version_id END,
    args_text = CASE WHEN alternative = 0 THEN %(args_text)s::text ELSE args_text END,
    args = CASE WHEN alternative = 0 THEN %(args_text)s::text::jsonb ELSE args END,
    fingerprint = CASE WHEN alternative = 0 THEN %(fingerprint)s ELSE fingerprint END,
    idempotency_key = CASE WHEN alternative = 0 THEN %(idempotency_key)s
                           ELSE idempotency_key END,
    resource = CASE WHEN alternative = 0 THEN %(resource)s ELSE resource END,
    tier = CASE WHEN alternative = 0 THEN %(tier)s ELSE tier END,
    blast_radius = CASE WHEN alternative = 0 THEN %(blast_radius)s ELSE blast_radius END,
    verdict = CASE WHEN alternative = 0 THEN %(verdict)s ELSE verdict END,
    alternatives = %(alternatives)s::jsonb
WHERE id = %(id)s AND state = 'awaiting_approval'
"""


def edit(unit: Unit, case: Case, args: Any) -> None:
    """Run `args` instead: checked by today's tool, under a new digest, through the gate.

    Raises InvalidArgs (outside the schema, the same as now, another effect) and
    PreviouslyRejected (the policy denies it, or a person has rejected exactly this).
    """
    saga, step = case.saga, case.step
    old = step.variant
    tool = registry().get(old.tool)
    new = edited(step, tool, args)
    if new.fingerprint == old.fingerprint:
        _refuse("These are the arguments that it has now. To run those, try it again.")
    why = edited_by(unit.actor)
    must_ask = why if old.verdict == "ask" else ""
    verdict = judged(saga, step, new, must_ask)
    step.fence += 1
    settled(step)
    unit.move(step, StepState.AWAITING_APPROVAL, "step.held_again", why=why)
    gate().close([step.id], why)
    unit.flush()
    step = supersede(unit, step, tool, replace(new, verdict=verdict.kind), verdict.rule)
    if verdict.kind == "allow":
        forward.queue(unit, step, "step.queued", why=why)
    else:
        ask(unit, saga, step, Direction.FORWARD, verdict, why=why)
    forward.unstick(unit, saga, "an operator edited the arguments")


def edited_by(actor: str) -> str:
    """Why people are asked about a version that a person has written."""
    return f"{actor.removeprefix('person:')} edited the arguments."


def edited(step: StepRow, tool: Tool, args: Any) -> Variant:
    """What the step would run with `args` instead: checked, filled, and under its own key.

    Raises InvalidArgs: outside the schema, another effect, or what it has may have happened.
    """
    old = step.variant
    filled = tool.checked_args(args)
    args_text = keys.canonical(filled)
    fingerprint = keys.fingerprint(args_text)
    if has_open_doubt(step) and fingerprint != old.fingerprint:
        _refuse("It may have happened with the arguments that it has: that is answered first.")
    effect_key, claimed = tool.effect_key_for(filled) or "", keys.repeated_effect(old.effect_key)
    if effect_key != claimed:
        _refuse(
            f"With these arguments it would be another effect, {effect_key!r} and not "
            f"{claimed!r}. For another effect the agent proposes another step."
        )
    return replace(
        old,
        tool_digest=tool.digest,
        tool_version=tool.version,
        tier=tool.tier,
        blast_radius=tool.blast_radius,
        args_text=args_text,
        fingerprint=fingerprint,
        idempotency_key=keys.downstream_key(str(step.saga_id), step.step_id, tool.key, args_text),
        resource=tool.resource_for(filled) or "",
    )


def _refuse(why: str) -> None:
    raise errors.InvalidArgs(why, errors=[{"pointer": "/args", "detail": why}])


def judged(saga: SagaRow, step: StepRow, new: Variant, must_ask: str) -> Verdict:
    """The gate's verdict on an edited version. What was rejected stays rejected.

    Raises PreviouslyRejected: a person has rejected exactly this, or the policy denies it.
    """
    rejected = storage.row(
        REJECTED, {"saga": step.saga_id, "tool": new.tool, "fingerprint": new.fingerprint}
    )
    if rejected is not None:
        raise errors.PreviouslyRejected(
            f"A person rejected exactly this as step {rejected.step_id!r}. Nothing was changed."
        )
    verdict = judge_variant(saga, step.view(), new, Direction.FORWARD, must_ask=must_ask)
    if verdict.kind == "deny":
        raise errors.PreviouslyRejected(
            f"The rule {verdict.rule!r} of the policy denies this version. Nothing was changed."
        )
    return verdict


def supersede(
    unit: Unit, step: StepRow, tool: Tool, new: Variant, rule: str, *, by: str = ""
) -> StepRow:
    """Write the new version over the old one, which is kept; the step as it is then.

    `by` names who edited it instead of approving it: the old version is then answered with that.
    """
    old = step.variant
    _write(step, tool, old, new, by)
    del unit.steps[step.id]
    unit.lock_with_steps([step.id])
    step = unit.steps[step.id]
    tell_revised(unit, step, rule, was={"args": old.args, "args_digest": old.fingerprint})
    return step


def _write(step: StepRow, tool: Tool, old: Variant, new: Variant, by: str) -> None:
    alternatives = list(step.alternatives)
    if old.index:
        alternatives[old.index - 1] = new.stored()
    former = step.former(old)
    if by:
        former["edited_by"] = by
    columns = {
        "id": step.id,
        "former": json.dumps([former]),
        "tool": tool.key,
        "tool_digest": tool.digest,
        "tool_version": tool.version,
        "definition": tool.definition_text,
        "args_text": new.args_text,
        "fingerprint": new.fingerprint,
        "idempotency_key": new.idempotency_key,
        "resource": new.resource,
        "tier": new.tier,
        "blast_radius": new.blast_radius,
        "verdict": new.verdict,
        "alternatives": json.dumps(alternatives),
    }
    if storage.execute(_SUPERSEDE, columns) != 1:
        raise Superseded
