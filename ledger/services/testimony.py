"""What attempts have said of themselves, be it late: a "done" stays true, and two are two effects.

Whoever settles a step hears them here (`heard_instead`, `tell_second_effect`); what follows from
one that has just come is in `ledger/services/evidence.py`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ledger import storage
from ledger.gate import Leaving, gate
from ledger.rows import SagaRow, StepRow
from ledger.services.asking import key_for
from ledger.services.attempts import spend_key
from ledger.services.effects import take_effect
from ledger.services.tooling import target_dedupes
from ledger.services.unit import Unit
from ledger.states import STEP_FINISHED, Direction

_DONE = """
SELECT alternative, idempotency_key, late FROM ledger_attempt
WHERE step_id = %s AND direction = %s AND late ->> 'outcome' = 'done' ORDER BY fence DESC LIMIT 1
"""
_OTHERS_DONE = """
SELECT idempotency_key FROM ledger_attempt
WHERE step_id = %s AND direction = %s AND fence <> %s
    AND (state = 'done' OR late ->> 'outcome' = 'done')
"""
_UNSEEN = """
SELECT payload::jsonb ->> 'why' AS why FROM ledger_entry e
WHERE saga_id = %(saga)s AND step_id = %(step)s AND kind = 'step.contradicted'
    AND NOT EXISTS (
        SELECT 1 FROM ledger_entry a WHERE a.saga_id = e.saga_id AND a.step_id = e.step_id
            AND a.kind = 'operator.acknowledged' AND a.seq > e.seq)
ORDER BY seq DESC LIMIT 1
"""


@dataclass(frozen=True, slots=True)
class LateDone:
    """What an attempt said after its time: which choice of the step, and its result."""

    alternative: int
    idempotency_key: str
    result: Any


def late_done(step: StepRow, direction: Direction) -> LateDone | None:
    """The newest late "done" about this direction of a step, if there is one."""
    found = storage.row(_DONE, [step.id, direction])
    if found is None:
        return None
    return LateDone(found.alternative, found.idempotency_key, found.late.get("result"))


def is_about(step: StepRow, direction: Direction, late: LateDone) -> bool:
    """Whether it speaks of one of the step's present choices, not of a version since edited."""
    if late.alternative > len(step.alternatives):
        return False
    return key_for(step, direction, late.alternative) == late.idempotency_key


def believe(saga: SagaRow, step: StepRow, direction: Direction, late: LateDone) -> None:
    """It has happened by this choice of the step: the key is spent, and limits count it.

    Somebody may have settled before that it had not, and what it took was given back.
    """
    if direction == Direction.FORWARD:
        step.alternative = late.alternative
    spend_key(step, direction, late.result, how="late answer")
    if direction == Direction.FORWARD:
        # One that had ended as if without an effect has given its claim back.
        take_effect(step)
        variant = step.variant
        ran = Leaving(step.id, variant.tool, saga.agent, variant.args, late.idempotency_key)
        gate().count([ran])


def heard_instead(saga: SagaRow, step: StepRow, direction: Direction) -> LateDone | None:
    """The late "done" that counts where somebody, or a look, has seen nothing; it is believed."""
    late = late_done(step, direction)
    if late is None or not is_about(step, direction, late):
        return None
    believe(saga, step, direction, late)
    return late


def tell_second_effect(
    unit: Unit,
    saga: SagaRow,
    step: StepRow,
    direction: Direction,
    *,
    key: str = "",
    fence: int = 0,
) -> None:
    """Tell people when another attempt of this direction has said "done" as well.

    `key` and `fence` are those of the attempt that says so now. Without them what is settled
    counts, by whoever found it: one of those that said "done" under its key is that effect.
    A target that dedupes makes one effect of all that came under one key, and of no others.
    """
    settled = key_for(step, direction)
    said = [row.idempotency_key for row in storage.rows(_OTHERS_DONE, [step.id, direction, fence])]
    key = key or settled
    again = 0 if target_dedupes(step.variant) else said.count(key) - (fence == 0)
    others = {one for one in (*said, settled) if one != key}
    if again > 0 or others:
        what = "attempts" if direction == Direction.FORWARD else "undos"
        why = f"Two of its {what} say that they were carried out. Look at the target for both."
        contradict(unit, saga, step, why)


def contradict(unit: Unit, saga: SagaRow, step: StepRow, why: str) -> None:
    """Nothing can be settled by this: it is shown until a person has seen to it."""
    if step.state in STEP_FINISHED:
        step.held_why = why
    step.dirty = True
    unit.entry(saga, "step.contradicted", step, why=why)


def unseen(step: StepRow) -> str:
    """What was told by `contradict` and nobody has seen to yet, or ''."""
    found = storage.row(_UNSEEN, {"saga": step.saga_id, "step": step.step_id})
    return str(found.why) if found else ""
