"""The right of one step to an effect, taken after the step itself was written."""

from __future__ import annotations

from typing import Any

from ledger import keys, storage
from ledger.models.fields import uuid7
from ledger.rows import StepRow
from ledger.services.proposing_sql import ALONE_WITH_SKELETON, CLAIM_EFFECT, OTHER_HOLDER


def take_effect(step: StepRow) -> Any | None:
    """Claim the effect of the step's present choice; its other holder, or None.

    Who holds one that only looks the same counts too. A claim that is the step's own is kept.
    """
    key = step.variant.effect_key
    if not key:
        return None
    skeleton = keys.claim_skeleton(key)
    storage.rows(ALONE_WITH_SKELETON, [skeleton])
    storage.execute(CLAIM_EFFECT, [uuid7(), key, skeleton, step.id])
    return storage.row(OTHER_HOLDER, {"skeleton": skeleton, "step": step.id})
