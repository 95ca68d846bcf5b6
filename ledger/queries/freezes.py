"""Which active freezes hold a saga and its steps; the same look as claiming's (rule 5.13)."""

from __future__ import annotations

from collections.abc import Iterable
from uuid import UUID

from django.db.models import Q
from django.db.models.functions import Now

from ledger.models import Freeze, Saga
from ledger.storage import row

# More at once than a person could have set; the oldest tells since when.
_MOST = 100
# One trip: the saga by its key, and the few rows of a partial index.
_MARK = """
SELECT s.head_seq, (
    SELECT md5(string_agg(f.id::text, ',' ORDER BY f.id)) FROM ledger_freeze f
    WHERE f.lifted_at IS NULL AND (f.expires_at IS NULL OR f.expires_at > clock_timestamp())
) AS frozen
FROM ledger_saga s WHERE s.id = %s
"""


def over(of: Saga, tools: Iterable[str]) -> list[Freeze]:
    """Active freezes that stop this saga or one of these tools, the oldest first: one query."""
    mine = Q(scope="all") | Q(scope="agent", value=of.agent.name) | Q(scope="saga", value=of.pk)
    unexpired = Q(expires_at__isnull=True) | Q(expires_at__gt=Now())
    found = Freeze.objects.filter(unexpired, lifted_at__isnull=True)
    found = found.filter(mine | Q(scope="tool", value__in=list(tools)))
    return list(found.order_by("created_at")[:_MOST])


def holding(of: Saga, tool: str) -> str:
    """Which freeze keeps this tool from running in this saga, as a sentence; '' when none does."""
    found = over(of, [tool])
    if not found:
        return ""
    who = found[0].created_by.partition(":")[2] or found[0].created_by
    return f"a freeze by {who} holds it until that is lifted: {found[0].reason}"


def mark(saga: UUID) -> str:
    """What a page about this saga has seen: its last entry, and the active freezes.

    A freeze of a tool or of everything is told by no entry of the saga.
    """
    found = row(_MARK, [saga])
    if found is None:
        return ""
    return f"{found.head_seq}-{found.frozen[:12]}" if found.frozen else str(found.head_seq)
