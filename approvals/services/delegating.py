"""Out of office: lending one's right to somebody for a time, and taking it back."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from django.contrib.auth import get_user_model

from approvals.models import Delegation
from ledger import reasons, storage
from ledger.bearer import Bearer
from ledger.errors import Forbidden, InvalidArgs, NotFound

# Longer than that is not an absence: put the person into the group.
LONGEST = timedelta(days=92)
# By the database's clock: one that has not begun never was, and takes no answer with it.
_WITHDRAW = """
UPDATE approvals_delegation SET withdrawn_at = clock_timestamp()
WHERE id = %s AND delegator_id = %s AND withdrawn_at IS NULL AND ends_at > clock_timestamp()
RETURNING id
"""


def delegate(
    bearer: Bearer, to: str, *, reason: str, ends_at: datetime, starts_at: datetime | None = None
) -> UUID:
    """Let `to` answer in one's own right until `ends_at`; from now on without `starts_at`.

    Only one's own right, and never what was lent to oneself. Times are aware. Raises
    Forbidden, InvalidArgs.
    """
    if bearer.user_id is None:
        raise Forbidden("An agent has no right that it could lend.")
    why = reasons.needed(reason)
    people: Any = get_user_model().objects
    delegate_ = people.filter(username=to, is_active=True).first()
    if delegate_ is None:
        raise _wrong("to", f"there is nobody called {to!r}")
    if delegate_.pk == bearer.user_id:
        raise _wrong("to", "it must be somebody else")
    now: datetime = storage.the_row("SELECT clock_timestamp() AS now", []).now
    begins = starts_at or now
    if ends_at <= max(begins, now):
        raise _wrong("ends_at", "it must be in the future, and after the start")
    if ends_at - begins > LONGEST:
        raise _wrong("ends_at", f"at most {LONGEST.days} days after the start")
    return Delegation.objects.create(
        delegator_id=bearer.user_id,
        delegate=delegate_,
        starts_at=begins.astimezone(UTC),
        ends_at=ends_at.astimezone(UTC),
        reason=why,
    ).pk


def withdraw(bearer: Bearer, delegation: UUID) -> None:
    """Take one's right back; answers that were given in it count no longer. Raises NotFound."""
    if storage.row(_WITHDRAW, [delegation, bearer.user_id]) is None:
        raise NotFound("There is no delegation of yours with this id that could be withdrawn.")


def _wrong(field: str, detail: str) -> InvalidArgs:
    return InvalidArgs(f"`{field}`: {detail}.", errors=[{"pointer": f"/{field}", "detail": detail}])
