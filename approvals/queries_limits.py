"""How full limits are, by the database's clock."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from approvals.expressions import CannotEvaluate
from approvals.limits import Limit
from approvals.sentences import length, number
from ledger import storage

# The time is asked of the database in the statement itself, so no worker's clock matters. What
# this very key has taken already is not counted against it: a second try is the same run.
_USED = """
SELECT w.n, coalesce(sum(r.amount), 0) AS used,
    coalesce(bool_or(r.idempotency_key = w.key), false) AS is_taken
FROM unnest(%s::int[], %s::text[], %s::text[], %s::float8[], %s::text[])
    AS w(n, limit_name, share, per_s, key)
LEFT JOIN approvals_reservation r ON r.limit_name = w.limit_name AND r.share = w.share
    AND r.returned_at IS NULL
    AND (r.reserved_at > clock_timestamp() - w.per_s * interval '1 second'
        OR r.idempotency_key = w.key)
GROUP BY w.n ORDER BY w.n
"""


@dataclass(frozen=True, slots=True)
class Use:
    """What one run would make of one limit. `amount` is None when it cannot be counted."""

    limit: Limit
    share: str
    key: str
    used: Decimal
    amount: Decimal | None
    is_taken: bool
    why: str = ""

    @property
    def would(self) -> Decimal:
        """What the limit would hold with this run."""
        return self.used if self.is_taken else self.used + (self.amount or 0)

    @property
    def is_over(self) -> bool:
        """Whether the limit stops it. What this run took already, it may keep."""
        if self.is_taken:
            return False
        return self.amount is None or self.would > Decimal(repr(self.limit.max))

    def sentence(self) -> str:
        """'this would make 4,200 of 5,000 in 24 h for the agent refunder'."""
        whose = f" for the {self.limit.by} {self.share}" if self.share else ""
        there = f"{number(Decimal(repr(self.limit.max)))} in {length(self.limit.per_s)}{whose}"
        if self.amount is None:
            return f"it cannot be counted ({self.why}); the limit is {there}"
        return f"this would make {number(self.would)} of {there}"


def uses(
    limits: Iterable[Limit], tool: str, agent: str, args: Mapping[str, Any], key: str
) -> list[Use]:
    """What a run under this key would make of each limit that is about it."""
    return used(wanted(limits, tool, agent, args, key))


def wanted(
    limits: Iterable[Limit], tool: str, agent: str, args: Mapping[str, Any], key: str
) -> list[Use]:
    """The limits that are about a run and what it uses of each, before any is looked at."""
    about = [limit for limit in limits if limit.is_about(tool, agent)]
    return [Use(limit, limit.share_of(tool, agent), key, *_amount(limit, args)) for limit in about]


def _amount(limit: Limit, args: Mapping[str, Any]) -> tuple[Decimal, Decimal | None, bool, str]:
    try:
        return Decimal(0), limit.amount(args), False, ""
    except CannotEvaluate as error:
        return Decimal(0), None, False, str(error)


def used(asked: Sequence[Use]) -> list[Use]:
    """The same, with what each limit holds now: one statement for all of them."""
    if not asked:
        return []
    columns = zip(
        *(
            (at, one.limit.name, one.share, one.limit.per_s, one.key)
            for at, one in enumerate(asked)
        ),
        strict=True,
    )
    rows = storage.rows(_USED, [list(column) for column in columns])
    return [
        Use(one.limit, one.share, one.key, row.used, one.amount, row.is_taken, one.why)
        for one, row in zip(asked, rows, strict=True)
    ]
