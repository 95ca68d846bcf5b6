"""Proposing a step: the one place in which an agent's wish becomes a row, or does not."""

from __future__ import annotations

from dataclasses import replace
from typing import Any
from uuid import UUID

from django.db import InterfaceError, OperationalError, connection

from ledger import errors, faultpoints, storage
from ledger.bearer import Bearer
from ledger.rows import SagaRow
from ledger.services import beginning, inserting, refusals, relating, remembering
from ledger.services import proposing_sql as sql
from ledger.services.answering import answer_for, answer_for_effect
from ledger.services.preparing import Prepared, prepare
from ledger.services.proofs import Proof
from ledger.services.proposals import Answer, Proposal
from ledger.services.revising import revise
from ledger.services.settling import turn_back
from ledger.services.unit import Unit
from ledger.statements import Coming
from ledger.states import StepState

# How often a proposal looks again after losing an effect key to one that is just being
# committed. The second look always finds it, unless that one was rolled back meanwhile.
LOOKS = 5


def propose(
    saga_id: UUID,
    proposal: Proposal,
    *,
    bearer: Bearer,
    proof: Proof | None = None,
    prepared: Prepared | None = None,
) -> Answer:
    """Submit one step; asked again it answers from the ledger and runs nothing.

    With `proof` the bearer is only presumed, and looked up behind the saga's lock. `prepared`: what
    the proposal comes to, where that is known.

    Raises NotFound, Forbidden, UnknownTool, InvalidArgs, StepMismatch, EffectClaimed,
    PreviouslyRejected, SagaEnded (design section 4 has the table); with `proof`, Unauthorized.
    """
    try:
        return _answered(saga_id, proposal, bearer, proof, prepared)
    except (OperationalError, InterfaceError) as error:
        if connection.in_atomic_block or not storage.may_be_done(error):
            raise
    connection.close()
    return propose_again(saga_id, proposal, bearer=bearer, proof=proof, prepared=prepared)


def propose_again(
    saga_id: UUID,
    proposal: Proposal,
    *,
    bearer: Bearer,
    proof: Proof | None = None,
    prepared: Prepared | None = None,
) -> Answer:
    """As `propose`, of what may have been committed already: nobody was told.

    Its key knows: asked for again, the step answers, and if this is the one that we had just
    inserted then it is accepted and not a repeat.
    """
    answer = _answered(saga_id, proposal, bearer, proof, prepared)
    ours = answer.kind == "in_flight" and answer.effect_of is None
    return replace(answer, kind="accepted") if ours else answer


def _answered(
    saga_id: UUID,
    proposal: Proposal,
    bearer: Bearer,
    proof: Proof | None,
    prepared: Prepared | None,
) -> Answer:
    """The answer; begun anew where the token is another one than was presumed."""
    try:
        who = proof.bearer if proof else bearer
        answer = _propose(saga_id, proposal, who, proof, prepared)
        if isinstance(answer, errors.SagaError):
            raise answer
        return answer
    except errors.SagaError:
        if proof is None or not proof.is_corrected():
            raise
    return _answered(saga_id, proposal, bearer, proof, prepared)


@storage.transition
def _propose(
    saga_id: UUID,
    proposal: Proposal,
    bearer: Bearer,
    proof: Proof | None,
    prepared: Prepared | None,
) -> Answer | errors.SagaError:
    """A refusal that is a fact of the saga is returned, so that it is committed."""
    unit = Unit(bearer.actor)
    # Postgres gets the lock while the proposal is being checked; no agent gets that of another.
    owner = [] if proof is None else [proof.statement]
    lock = unit.lock_ahead(saga_id, of=bearer.agent_id, then=owner)
    if prepared is None or prepared.bearer != bearer:
        prepared = prepare(saga_id, proposal, bearer=bearer)
    faultpoints.reached("P0")
    looked = storage.ahead(relating.looks(saga_id, prepared))
    owned = unit.locked(lock)
    if proof is not None:
        proof.heed(owned[0])
    saga = unit.sagas.get(saga_id)
    if saga is None:
        return remembering.answer(saga_id, prepared, bearer)
    try:
        told = propose_in(unit, saga, prepared, looked)
        heed_denials(unit, saga, told)
        answer: Answer | errors.SagaError = told
    except refusals.KEPT as error:
        refusals.keep(unit, saga, proposal.step_id, error)
        answer = error
    faultpoints.reached("P1")
    unit.flush(last=True)
    return answer


def propose_in(
    unit: Unit, saga: SagaRow, prepared: Prepared, looked: Coming | None = None
) -> Answer:
    """Propose within a locked saga; joins the caller's transaction, and `heed_denials` follows.

    `looked`: `relating.looks`, when they were sent together with the lock.
    """
    if looked is None:
        looked = storage.ahead(relating.looks(saga.id, prepared))
    # While Postgres looks: what it comes to when nothing is found.
    draft = beginning.drafted(saga, prepared)
    found = storage.rows_of(looked)[-1]
    for look in range(LOOKS):
        if look:
            found = storage.rows_all(relating.looks(saga.id, prepared))[-1]
        related = {row.why: row for row in found}
        if "no" in related:
            decided = storage.rows(sql.REJECTIONS, relating.named(saga.id, prepared))
            related |= {row.why: row for row in decided}
        if prior := related.get("same"):
            if prior.state == StepState.CHANGE_REQUESTED:
                if revised := revise(unit, saga, prior.id, prepared):
                    return revised
            refusals.refuse_edited(prior, prepared)
            return answer_for(unit, saga, prior, prepared)
        _refuse_edited_elsewhere(saga, related, prepared)
        refusals.refuse_rejected_alternatives(saga, prepared)
        if holder := related.get("effect"):
            return answer_for_effect(unit, saga, holder, prepared)
        _refuse_when_closed(saga, related)
        if inserting.claim_effect(draft.step, prepared):
            return inserting.insert(unit, saga, draft, prepared, related)
    raise errors.StepInFlight(
        "Another step that claims the same effect is being submitted; ask again.",
        headers={"Retry-After": "1"},
    )


def _refuse_edited_elsewhere(saga: SagaRow, related: dict[str, Any], prepared: Prepared) -> None:
    """Under another name too: what a person has edited is not run as it was before."""
    if prepared.proposal.repeat_of is not None:
        return  # said to be a second effect, and people are asked about it
    for why in ("effect", "version"):
        if (found := related.get(why)) and found.saga_id == saga.id:
            refusals.refuse_edited(found, prepared)


def _refuse_when_closed(saga: SagaRow, related: dict[str, Any]) -> None:
    if rejected := related.get("rejected"):
        refusals.refuse_rejected(rejected, saga)
    if why := saga.why_no_more_steps:
        raise errors.SagaEnded(
            f"The saga {saga.task_id!r} takes no more steps: {why}. Open a saga under a new "
            "task_id for new work.",
            saga=str(saga.id),
            state=saga.state,
        )


def heed_denials(unit: Unit, saga: SagaRow, *answers: Answer) -> None:
    """Turn a saga back for the first step that was denied, once all that came with it are told.

    One that turned at once would take no more steps: the rest of the request would be refused,
    and the denial rolled back with it.
    """
    denied = next((answer.step for answer in answers if answer.denied), None)
    if denied is None:
        return
    unit.flush()
    unit.lock_with_steps([denied])
    row = unit.steps[denied]
    turn_back(unit, saga, row, f"the policy denies step {row.step_id}")
