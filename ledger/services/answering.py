"""What an agent hears when it asks for a step that the ledger already knows."""

from __future__ import annotations

import json
from typing import Any

from ledger import errors, keys, storage
from ledger.rows import SagaRow
from ledger.services.preparing import Prepared
from ledger.services.proposals import Answer
from ledger.services.unit import Unit
from ledger.states import STEP_FINISHED


def answer_for(unit: Unit, saga: SagaRow, prior: Any, prepared: Prepared) -> Answer:
    """The same step asked again: its own answer, or a refusal that changes nothing."""
    if not prepared.matches(prior):
        raise errors.StepMismatch(
            f"Step {prior.step_id!r} was submitted before with other arguments or another tool. "
            "Send exactly those again to get its answer, or use a new step_id for a new effect.",
            **difference(prior, prepared),
        )
    return _answer(unit, saga, prior, prepared, effect_of=False)


def answer_for_effect(unit: Unit, saga: SagaRow, holder: Any, prepared: Prepared) -> Answer:
    """Another step already holds this effect: that step answers, and no second effect is made."""
    if not prepared.matches(holder):
        raise errors.EffectClaimed(
            f"The effect {prepared.claim!r} is already claimed by step {holder.id} with other "
            "arguments. If a second effect is really wanted, say so with repeat_of and a reason; "
            "a person will decide.",
            effect_of=str(holder.id),
            **difference(holder, prepared),
        )
    return _answer(unit, saga, holder, prepared, effect_of=True)


def _answer(
    unit: Unit, saga: SagaRow, prior: Any, prepared: Prepared, *, effect_of: bool
) -> Answer:
    other = prior.id if effect_of else None
    if prior.state not in STEP_FINISHED:
        if effect_of:
            _tell_once(unit, saga, prior, prepared.proposal.step_id)
        return Answer("in_flight", prior.id, other)
    told = {"effect_of": str(prior.id)} if effect_of else {}
    unit.entry(saga, "step.replayed", prepared.proposal.step_id, answered=prior.state, **told)
    args = None if prior.args_text else prepared.args
    return Answer("replayed", prior.id, other, args=args)


def _tell_once(unit: Unit, saga: SagaRow, holder: Any, step_id: str) -> None:
    """Keep in the asking saga that its step is another one: nothing else in it would show that.

    Once for each pair, because an agent that is told 409 asks again every second (case C101).
    """
    known = storage.row(
        "SELECT 1 FROM ledger_entry WHERE saga_id = %s AND step_id = %s "
        "AND kind = 'step.deduplicated' AND payload::jsonb ->> 'effect_of' = %s LIMIT 1",
        [saga.id, step_id, str(holder.id)],
    )
    if known is None:
        unit.entry(saga, "step.deduplicated", step_id, effect_of=str(holder.id), was=holder.state)


def difference(prior: Any, prepared: Prepared) -> dict[str, Any]:
    """Both digests, and the paths that differ: null when the args are archived."""
    args = prior.args_text
    return {
        "step": str(prior.id),
        "recorded": {"tool": prior.tool, "args_digest": prior.fingerprint},
        "submitted": {"tool": prepared.tool.key, "args_digest": prepared.fingerprint},
        "differing_paths": keys.differing_paths(json.loads(args), prepared.args) if args else None,
    }
