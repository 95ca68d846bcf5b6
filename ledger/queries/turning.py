"""How a saga turned back, and whether somebody has seen what it left: told by single entries."""

from __future__ import annotations

import json
from dataclasses import dataclass

from ledger.models import Entry, Saga


@dataclass(frozen=True, slots=True)
class TurnedBack:
    """The entry with which a saga turned back, and that of the no that was its cause."""

    entry: Entry
    refusal: Entry | None


def turned_back(of: Saga) -> TurnedBack | None:
    """By whom and when; None while the saga goes forward."""
    entry = Entry.objects.filter(saga=of, kind="saga.compensating").order_by("seq").first()
    if entry is None:
        return None
    told = Entry.objects.filter(saga=of, kind="approval.rejected", seq__lt=entry.seq)
    cause = json.loads(entry.payload).get("cause") or ""
    return TurnedBack(entry, told.filter(step_id=cause).order_by("seq").last())


def residue_told(of: Saga) -> Entry | None:
    """The entry in which a person acknowledged what this saga left, if one has."""
    return Entry.objects.filter(saga=of, kind="residue.acknowledged").first()
