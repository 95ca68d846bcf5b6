"""What a proposal may be about: the steps that are there already, by why they matter."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from ledger.services import proposing_sql as sql
from ledger.services.preparing import Prepared
from ledger.statements import Statement


def looks(saga_id: UUID, prepared: Prepared, *, waits: bool = True) -> list[Statement]:
    """The last reads the steps that this proposal may be about, by why they matter.

    Of a tool that claims an effect only once nobody else can claim what looks like it: the first
    waits for that, or without `waits` reads whether it is so, as `alone`.
    """
    asked = named(saga_id, prepared)
    if not prepared.claim:
        return [(sql.RELATED, asked)]
    effect = {"claim": prepared.claim, "skeleton": prepared.skeleton}
    alone = sql.ALONE_WITH_SKELETON if waits else sql.ALONE_IF_FREE
    return [(alone, [prepared.skeleton]), (sql.RELATED_BY_EFFECT, asked | effect)]


def named(saga_id: UUID, prepared: Prepared) -> dict[str, Any]:
    """The parameters of `RELATED` and `REJECTIONS`."""
    return {
        "saga": saga_id,
        "step_id": prepared.proposal.step_id,
        "tool": prepared.tool.key,
        "fingerprint": prepared.fingerprint,
    }
