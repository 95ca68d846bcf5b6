"""A person's word that they have seen what an ended saga left in the world."""

from __future__ import annotations

from uuid import UUID

from ledger import errors, storage
from ledger.services.unit import Unit
from ledger.states import SAGA_ENDED

ACKNOWLEDGED = "residue.acknowledged"

_SAID = "SELECT 1 FROM ledger_entry WHERE saga_id = %s AND kind = %s LIMIT 1"


@storage.transition
def acknowledge_residue(saga_id: UUID, *, reason: str, actor: str) -> None:
    """Tell that the residue of an ended saga was seen; it may be archived then. Said twice: once.

    Raises NotFound, InvalidArgs (no reason), AlreadyDecided (nothing is left, or not ended).
    """
    if not reason.strip():
        raise errors.InvalidArgs("Give a reason: what became of what was left.")
    unit = Unit(actor)
    unit.lock([saga_id])
    saga = unit.sagas.get(saga_id)
    if saga is None:
        raise errors.NotFound(f"There is no saga {saga_id}.")
    left = [step.step_id for step in unit.read_saga_steps(saga) if step.residue]
    if saga.state not in SAGA_ENDED or not left:
        raise errors.AlreadyDecided(
            f"The saga is {saga.state} and has no residue to acknowledge.", state=saga.state
        )
    if storage.row(_SAID, [saga_id, ACKNOWLEDGED]) is None:
        unit.entry(saga, ACKNOWLEDGED, reason=reason, steps=left)
    unit.flush()
