"""What pages show about who decides: delegations, open reviews, and the people to choose from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from django.contrib.auth import get_user_model
from django.db.models import Q

from approvals.models import Delegation, Review
from approvals.queries import CLOCK

# A page; older ones are in the sagas' ledgers.
SHOWN = 50


@dataclass(frozen=True, slots=True)
class DelegationRow:
    """One delegation as its page shows it."""

    delegation: Delegation
    state: str
    is_mine: bool
    can_withdraw: bool


def delegations_of(user_id: int) -> Sequence[DelegationRow]:
    """Those that this person gave or took, newest first."""
    found = (
        Delegation.objects.filter(Q(delegator_id=user_id) | Q(delegate_id=user_id))
        .annotate(**CLOCK)
        .select_related("delegator", "delegate")
        .order_by("-id")[:SHOWN]
    )
    return [_row(one, user_id) for one in found]


def _row(one: Any, user_id: int) -> DelegationRow:
    if one.withdrawn_at:
        state = "withdrawn"
    elif one.ends_at <= one.now:
        state = "over"
    else:
        state = "planned" if one.starts_at > one.now else "now"
    is_mine = one.delegator_id == user_id
    return DelegationRow(one, state, is_mine, is_mine and state in {"planned", "now"})


def others(user_id: int) -> Sequence[str]:
    """The names of those who could stand in."""
    people: Any = get_user_model().objects
    return list(
        people.filter(is_active=True)
        .exclude(pk=user_id)
        .order_by("username")
        .values_list("username", flat=True)[:500]
    )


def reviews(*, is_open: bool) -> Sequence[Review]:
    """Open ones, or those closed last, newest first."""
    found = Review.objects.filter(closed_at__isnull=is_open)
    return list(
        found.select_related("approval__step", "approval__saga", "decision").order_by("-id")[:SHOWN]
    )


def open_reviews() -> int:
    """How many are open, counted no further than a page has."""
    return Review.objects.filter(closed_at__isnull=True)[:SHOWN].count()
