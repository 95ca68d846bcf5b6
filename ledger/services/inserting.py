"""A new step, written: its row and entry, the effect that it claims, and what its state wants."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any
from uuid import UUID

from ledger import storage
from ledger.gate import Verdict
from ledger.models.fields import uuid7
from ledger.rows import SagaRow
from ledger.services import beginning
from ledger.services import proposing_sql as sql
from ledger.services.asking import ask
from ledger.services.beginning import Draft
from ledger.services.preparing import Prepared
from ledger.services.proposals import Answer
from ledger.services.unit import Unit
from ledger.states import Direction, StepState


def claim_effect(step: UUID, prepared: Prepared) -> bool:
    """Claim the effect key for a step about to be inserted; False when another just did."""
    if not prepared.claim:
        return True
    return storage.execute(sql.CLAIM_EFFECT, _claim(step, prepared)) == 1


def _claim(step: UUID, prepared: Prepared) -> list[Any]:
    return [uuid7(), prepared.claim, prepared.skeleton, step]


def insert_new(
    unit: Unit, saga: SagaRow, prepared: Prepared, found: Sequence[Any]
) -> Answer | None:
    """Insert what is new in every respect, and what nobody need be asked about, into a locked saga.

    `found`: the rows of `relating.looks`. None, and nothing is written: it may be about a step
    that is there, or a denial, people or a refusal are wanted. Where another comes first with the
    effect, the whole transition is undone (`Superseded`).
    """
    related = {row.why: row for row in found}
    if related.keys() - {"before"} or saga.why_no_more_steps:
        return None
    draft = beginning.drafted(saga, prepared)
    if draft.verdict.kind != "allow":
        return None
    if prepared.claim:
        unit.also(sql.CLAIM_EFFECT_SURELY, _claim(draft.step, prepared))
    return insert(unit, saga, draft, prepared, related)


def insert(
    unit: Unit, saga: SagaRow, draft: Draft, prepared: Prepared, related: dict[str, Any]
) -> Answer:
    """Insert a step whose effect is claimed, beside the steps that it is `related` to."""
    duplicate = None
    if prepared.proposal.repeat_of is None:
        duplicate = related.get("lookalike")
        if duplicate is None and not prepared.claim:
            duplicate = related.get("twin") or related.get("version")
    must_ask = beginning.must_ask(prepared, duplicate, related.get("reopened"))
    step = draft.step
    verdict, alternatives = beginning.judged(saga, draft, prepared, must_ask)
    state = beginning.first_state(verdict, related.get("before"))
    saga.step_count += 1
    unit.also(
        sql.INSERT_STEP,
        draft.columns
        | {
            "position": saga.step_count,
            "alternatives": json.dumps([other.stored() for other in alternatives]),
            "duplicate_of": duplicate.id if duplicate else None,
            "verdict": verdict.kind,
            "rule": verdict.rule,
            "policy": verdict.policy_digest,
            "state": state,
            "error": beginning.denial_of(verdict) if state == StepState.REJECTED else None,
        },
    )
    unit.send_ahead()
    unit.entry(
        saga,
        "step.proposed",
        prepared.proposal.step_id,
        state=state.value,
        tool=prepared.tool.key,
        tool_version=prepared.tool.version,
        tool_digest=prepared.tool.digest,
        tier=prepared.tool.tier.value,
        blast_radius=prepared.tool.blast_radius.value,
        args=prepared.args,
        args_digest=prepared.fingerprint,
        idempotency_key=prepared.variant.idempotency_key,
        effect_key=prepared.claim,
        reason=prepared.proposal.reason,
        verdict=verdict.kind,
        rule=verdict.rule,
        policy=verdict.policy_digest,
        **({"duplicate_of": str(duplicate.id)} if duplicate else {}),
    )
    _follow_up(unit, saga, step, state, verdict, prepared, must_ask)
    return Answer("accepted", step, denied=state == StepState.REJECTED)


def _follow_up(
    unit: Unit,
    saga: SagaRow,
    step: UUID,
    state: StepState,
    verdict: Verdict,
    prepared: Prepared,
    must_ask: str,
) -> None:
    """What the first state wants: a message, or a question to people."""
    if state == StepState.QUEUED:
        unit.also(
            sql.INSERT_MESSAGE,
            [step, saga.fence, prepared.tool.key, saga.agent, saga.id, prepared.variant.resource],
        )
        return
    if state == StepState.AWAITING_APPROVAL:
        unit.flush()
        unit.lock_with_steps([step])
        ask(unit, saga, unit.steps[step], Direction.FORWARD, verdict, why=must_ask)
