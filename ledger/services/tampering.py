"""A step that was changed behind the ledger: nothing of it runs.

Triggers refuse such changes; whoever owns the tables can put triggers to sleep. So before anything
that people answer for, and before every undo, the rows are held against the log.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from ledger import keys, storage
from ledger.doubt import has_open_doubt
from ledger.replay import is_told
from ledger.rows import SagaRow, StepRow, Variant
from ledger.services.asking import ask, denial, judge, key_for, tell_revised
from ledger.services.holding import refuse
from ledger.services.reconciling import hold_doubt
from ledger.services.unit import Superseded, Unit
from ledger.states import Direction, SagaState, StepState, Tier
from ledger.tools.contract import Tool

WHY = "The stored arguments do not match their digest. They were changed behind the ledger."
NOT_ITS_KEY = "Its key is not that of this step. It was changed behind the ledger."
NOT_THE_LOGS = (
    "What is stored is not what the log tells of this step. It was changed behind the ledger."
)
NOT_THE_EFFECT = (
    "The stored effect is not the one that the log tells. It was changed behind the ledger."
)
UNSAID = "The log knows of no yes to this. Its approval was written behind the ledger."
# What was last said about what this direction of the step runs: the request that people were
# shown, or else the entry that froze the arguments of this choice of the step.
_TOLD = """
SELECT kind, payload FROM ledger_entry
WHERE saga_id = %(saga)s AND step_id = %(step)s AND CASE kind
    WHEN 'approval.requested' THEN payload::jsonb ->> 'direction' = %(direction)s
    WHEN 'step.proposed' THEN %(alternative)s::int = 0
    WHEN 'step.revised' THEN coalesce(payload::jsonb ->> 'alternative', '0')::int = %(alternative)s
    WHEN 'step.alternative' THEN (payload::jsonb ->> 'alternative')::int = %(alternative)s
    ELSE false END
ORDER BY seq DESC LIMIT 1
"""
_EFFECT = """
SELECT payload FROM ledger_entry
WHERE saga_id = %(saga)s AND step_id = %(step)s AND seq = %(executed_seq)s
    AND kind = 'step.committed'
"""
# The last word about one request.
_SAID = """
SELECT kind, payload FROM ledger_entry
WHERE saga_id = %(saga)s AND step_id = %(step)s AND CASE WHEN kind IN ('approval.approved',
        'approval.rejected', 'approval.expired', 'approval.change_requested', 'approval.edited')
    THEN payload::jsonb ->> 'approval' = %(approval)s ELSE false END
ORDER BY seq DESC LIMIT 1
"""
_PUT_BACK = """
UPDATE ledger_step SET revision = revision + 1,
    args_text = %(text)s::text, args = %(text)s::text::jsonb,
    fingerprint = %(fingerprint)s, idempotency_key = %(key)s
WHERE id = %(id)s AND state = 'awaiting_approval'
"""
_PUT_BACK_ALTERNATIVE = """
UPDATE ledger_step SET revision = revision + 1,
    alternatives = jsonb_set(alternatives, ARRAY[(alternative - 1)::text],
        alternatives -> (alternative - 1) || jsonb_build_object('args_text', %(text)s::text,
            'fingerprint', %(fingerprint)s::text, 'idempotency_key', %(key)s::text))
WHERE id = %(id)s AND state = 'awaiting_approval'
"""


def tampered(step: StepRow, direction: Direction, tool: Tool) -> str:
    """Why this run of the step is not what it should be; '' when it is.

    Every run is held against its own digest and key. Against the log: what people were asked
    about, what cannot be undone, and what undoes an effect. Of all others `verify_ledger` tells:
    this is the hot path.
    """
    variant = step.variant
    if keys.fingerprint(variant.args_text) != variant.fingerprint:
        return WHY
    named = str(step.saga_id), step.step_id, variant.tool, variant.args_text
    if keys.downstream_key(*named) != variant.idempotency_key:
        return NOT_ITS_KEY
    forward = direction == Direction.FORWARD
    allowed = forward and variant.verdict == "allow"
    if allowed and variant.tier == tool.tier == Tier.COMPENSATABLE:
        return ""
    told = _told(step, direction)
    if told is None or not _is_what_runs(step, direction, told):
        return NOT_THE_LOGS
    if allowed and (told.was_shown or told.facts.get("verdict", "allow") != "allow"):
        return NOT_THE_LOGS
    return "" if forward or _is_its_effect(step) else NOT_THE_EFFECT


def unsaid(step: StepRow, direction: Direction) -> str:
    """Why an approval that the gate finds in order is none; '' when the log tells of that yes."""
    told = _told(step, direction)
    if told is None or not told.was_shown:
        # An undo that nobody was asked about may run, and nothing else.
        return UNSAID if direction == Direction.FORWARD else ""
    asked = {"saga": step.saga_id, "step": step.step_id, "approval": told.facts["approval"]}
    said = storage.row(_SAID, asked)
    if said is None or said.kind != "approval.approved":
        return UNSAID
    digest = json.loads(said.payload).get("args_digest", step.variant.fingerprint)
    return "" if digest == step.variant.fingerprint else UNSAID


def refuse_tampered(
    unit: Unit, saga: SagaRow, step: StepRow, direction: Direction, why: str
) -> None:
    """Tell it loudly. What people said yes to is put back from the log, and asked anew."""
    if has_open_doubt(step):
        unit.entry(saga, "step.tampered", step, why=why)
        hold_doubt(unit, saga, step, direction, why)
        return
    recorded = _to_put_back(step, direction)
    if recorded is not None:
        _put_back(unit, saga, step, recorded, why)
        return
    step.held_why = why
    step.error = {"code": "tampered", "detail": why}
    unit.move(step, StepState.STUCK, "step.tampered", why=why)
    if saga.state != SagaState.STUCK:
        unit.move_saga(saga, SagaState.STUCK, "saga.stuck", step=step.step_id, why=why)


@dataclass(frozen=True, slots=True)
class _Told:
    """What an entry tells of a run; `was_shown` when it is a request to people."""

    was_shown: bool
    facts: dict[str, Any]


def _told(step: StepRow, direction: Direction) -> _Told | None:
    asked = {"saga": step.saga_id, "step": step.step_id, "direction": direction.value}
    found = storage.row(_TOLD, asked | {"alternative": step.alternative})
    return found and _Told(found.kind == "approval.requested", json.loads(found.payload))


def _is_what_runs(step: StepRow, direction: Direction, told: _Told) -> bool:
    variant = step.variant
    if told.facts["args_digest"] != variant.fingerprint:
        return False
    runs = _of_its_tool(variant)
    if told.was_shown:
        runs["idempotency_key"] = key_for(step, direction)
    # Entries of earlier releases say less.
    return all(told.facts.get(name, value) == value for name, value in runs.items())


def _of_its_tool(variant: Variant) -> dict[str, str]:
    return {
        "tool": variant.tool,
        "tool_digest": variant.tool_digest,
        "tier": variant.tier,
        "blast_radius": variant.blast_radius,
    }


def _is_its_effect(step: StepRow) -> bool:
    asked = {"saga": step.saga_id, "step": step.step_id, "executed_seq": step.executed_seq}
    effect = storage.row(_EFFECT, asked)
    if effect is None:
        return False
    facts, variant = json.loads(effect.payload), step.variant
    ran = {"tool": variant.tool, "idempotency_key": variant.idempotency_key}
    if any(facts.get(name, value) != value for name, value in ran.items()):
        return False
    return is_told(step.result, facts.get("result"))


def _to_put_back(step: StepRow, direction: Direction) -> str | None:
    """The arguments that people were shown, when only those were changed."""
    variant = step.variant
    if direction != Direction.FORWARD or variant.verdict == "allow":
        return None
    told = _told(step, direction)
    if told is None or not told.was_shown:
        return None
    facts = told.facts
    if any(facts.get(name, now) != now for name, now in _of_its_tool(variant).items()):
        return None
    text = keys.canonical(facts["args"])
    return text if keys.fingerprint(text) == facts["args_digest"] else None


def _put_back(unit: Unit, saga: SagaRow, step: StepRow, args_text: str, tampering: str) -> None:
    why = f"{tampering} Its arguments were put back from the log; the yes before counts no more."
    seen = keys.fingerprint(step.variant.args_text)
    unit.move(step, StepState.AWAITING_APPROVAL, "step.tampered", why=tampering, found_digest=seen)
    unit.flush()
    tool = step.variant.tool
    columns = {
        "id": step.id,
        "text": args_text,
        "fingerprint": keys.fingerprint(args_text),
        "key": keys.downstream_key(str(step.saga_id), step.step_id, tool, args_text),
    }
    if storage.execute(_PUT_BACK_ALTERNATIVE if step.alternative else _PUT_BACK, columns) != 1:
        raise Superseded
    del unit.steps[step.id]
    unit.lock_with_steps([step.id])
    step = unit.steps[step.id]
    verdict = judge(saga, step, Direction.FORWARD, must_ask=why)
    tell_revised(unit, step, verdict.rule)
    if verdict.kind == "deny":
        refuse(unit, saga, step, "denied", denial(verdict))
    else:
        ask(unit, saga, step, Direction.FORWARD, verdict, why=why)
