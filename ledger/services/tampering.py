"""A step whose stored arguments were changed behind the ledger: nothing of it runs."""

from __future__ import annotations

from ledger import keys, storage
from ledger.rows import SagaRow, StepRow
from ledger.services.asking import ask, denial, judge
from ledger.services.holding import refuse
from ledger.services.reconciling import has_open_doubt
from ledger.services.unit import Superseded, Unit
from ledger.states import Direction, SagaState, StepState

WHY = "The stored arguments do not match their digest. They were changed behind the ledger."
_RECORDED = """
SELECT payload::jsonb -> 'args' AS args FROM ledger_entry
WHERE saga_id = %s AND step_id = %s AND kind IN ('step.proposed', 'step.revised')
    AND payload::jsonb ->> 'args_digest' = %s ORDER BY seq DESC LIMIT 1
"""
_PUT_BACK = """
UPDATE ledger_step SET args_text = %(args)s::text, args = %(args)s::text::jsonb,
    revision = revision + 1
WHERE id = %(id)s AND state = 'awaiting_approval'
"""


def refuse_tampered(unit: Unit, saga: SagaRow, step: StepRow, direction: Direction) -> None:
    """Tell it loudly. What people said yes to is put back from the log, and asked anew."""
    recorded = _recorded(step) if _is_held(step, direction) else None
    if recorded is not None:
        _put_back(unit, saga, step, recorded)
        return
    step.held_why = WHY
    step.error = {"code": "tampered", "detail": WHY}
    unit.move(step, StepState.STUCK, "step.tampered", why=WHY)
    if saga.state != SagaState.STUCK:
        unit.move_saga(saga, SagaState.STUCK, "saga.stuck", step=step.step_id, why=WHY)


def _is_held(step: StepRow, direction: Direction) -> bool:
    asked = step.variant.verdict == "ask" and direction == Direction.FORWARD
    return asked and step.alternative == 0 and not has_open_doubt(step)


def _recorded(step: StepRow) -> str | None:
    """What was proposed, as the entry has it, when that is what the digest says."""
    fingerprint = step.variant.fingerprint
    found = storage.row(_RECORDED, [step.saga_id, step.step_id, fingerprint])
    if found is None or not isinstance(found.args, dict):
        return None
    text = keys.canonical(found.args)
    return text if keys.fingerprint(text) == fingerprint else None


def _put_back(unit: Unit, saga: SagaRow, step: StepRow, recorded: str) -> None:
    why = f"{WHY} They were put back from the log; the yes before counts no more."
    seen = keys.fingerprint(step.variant.args_text)
    unit.move(step, StepState.AWAITING_APPROVAL, "step.tampered", why=WHY, found_digest=seen)
    unit.flush()
    if storage.execute(_PUT_BACK, {"id": step.id, "args": recorded}) != 1:
        raise Superseded
    del unit.steps[step.id]
    unit.lock_with_steps([step.id])
    step = unit.steps[step.id]
    verdict = judge(saga, step, Direction.FORWARD, must_ask=why)
    unit.move(
        step,
        StepState.AWAITING_APPROVAL,
        "step.revised",
        revision=step.revision,
        args=step.variant.args,
        args_digest=step.variant.fingerprint,
        idempotency_key=step.variant.idempotency_key,
        rule=verdict.rule,
    )
    if verdict.kind == "deny":
        refuse(unit, saga, step, "denied", denial(verdict))
    else:
        ask(unit, saga, step, Direction.FORWARD, verdict, why=why)
