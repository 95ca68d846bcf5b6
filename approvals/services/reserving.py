"""Taking from limits when a worker claims, and asking or denying what is over one.

Who takes waits for the shares that they want, in one order; what is read after that is all that
was committed before. So sixteen claims at once together stay within the limit.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from decimal import Decimal
from uuid import UUID

from approvals import queries_limits, rights
from approvals.limits import Limit
from approvals.models import Approval
from approvals.policy import current
from approvals.queries_limits import Use
from approvals.states import ApprovalState
from ledger import storage
from ledger.gate import Leaving, Overrun
from ledger.models.fields import uuid7
from ledger.states import Direction

# Held until the claim's transaction ends; a few milliseconds. No row is needed to wait for.
_WAIT_FOR_SHARES = """
SELECT pg_advisory_xact_lock(s.lock) FROM (
    SELECT DISTINCT hashtextextended(name, 0) AS lock FROM unnest(%s::text[]) AS n(name) ORDER BY 1
) s
"""
_RESERVE = """
INSERT INTO approvals_reservation
    (id, limit_name, share, step_id, idempotency_key, amount, reserved_at)
SELECT r.id, r.limit_name, r.share, r.step_id, r.key, r.amount, clock_timestamp()
FROM json_to_recordset(%s::json) AS r(
    id uuid, limit_name text, share text, step_id uuid, key text, amount numeric
)
"""


def reserve(limits: Sequence[Limit], leaving: Sequence[Leaving]) -> Mapping[UUID, Overrun]:
    """Take what these runs use; those that a limit stops take nothing. Joins the claim."""
    wanted = {run.step: _wanted(limits, run) for run in leaving}
    every = [use for uses in wanted.values() for use in uses]
    if not every:
        return {}
    _wait_for(every)
    now = iter(queries_limits.used(every))
    stopped: dict[UUID, Overrun] = {}
    taken: defaultdict[tuple[str, str], Decimal] = defaultdict(Decimal)
    rows = []
    for run in leaving:
        uses = [next(now) for _ in wanted[run.step]]
        with_others = [replace(use, used=use.used + taken[_of(use)]) for use in uses]
        if overrun := _overrun(run, with_others):
            stopped[run.step] = overrun
            continue
        for use in uses:
            if not use.is_taken:
                taken[_of(use)] += use.amount or 0
                rows.append(_row(run, use))
    if rows:
        storage.execute(_RESERVE, [json.dumps(rows)])
    return stopped


def count(limits: Sequence[Limit], ran: Sequence[Leaving]) -> None:
    """Take what these runs have used, over a limit or not: they have happened."""
    every = [use for run in ran for use in _wanted(limits, run)]
    if not every:
        return
    _wait_for(every)
    steps = {run.idempotency_key: run for run in ran}
    rows = [_row(steps[use.key], use) for use in queries_limits.used(every) if not use.is_taken]
    if rows:
        storage.execute(_RESERVE, [json.dumps(rows)])


def _wait_for(uses: Sequence[Use]) -> None:
    shares = sorted({f"limit {use.limit.name}\n{use.share}" for use in uses})
    storage.execute(_WAIT_FOR_SHARES, [shares])


def _wanted(limits: Sequence[Limit], run: Leaving) -> list[Use]:
    return queries_limits.wanted(limits, run.tool, run.agent, run.args, run.idempotency_key)


def _of(use: Use) -> tuple[str, str]:
    return use.limit.name, use.share


def _row(run: Leaving, use: Use) -> dict[str, str]:
    return {
        "id": str(uuid7()),
        "limit_name": use.limit.name,
        "share": use.share,
        "step_id": str(run.step),
        "key": use.key,
        "amount": str(use.amount or 0),
    }


def _overrun(run: Leaving, uses: Sequence[Use]) -> Overrun | None:
    over = [use for use in uses if use.is_over]
    if not over:
        return None
    # What cannot be counted is asked about, whatever the limit says of what is over it.
    denied = [use for use in over if use.limit.over == "deny" and use.amount is not None]
    if denied:
        return Overrun("deny", _why(denied))
    passed = _passed(run)
    asked = [use for use in over if use.limit.name not in passed]
    return Overrun("ask", _why(asked)) if asked else None


def _why(uses: Sequence[Use]) -> str:
    told = [f"limit “{use.limit.name}”: {use.sentence()}" for use in uses]
    return "Over the " + "; over the ".join(told) + "."


def _passed(run: Leaving) -> frozenset[str]:
    """The limits that people have said it may pass, by a yes that still stands."""
    request = (
        Approval.objects.filter(
            step_id=run.step,
            direction=Direction.FORWARD,
            state=ApprovalState.APPROVED,
            idempotency_key=run.idempotency_key,
            policy_digest=current().digest,
        )
        .select_related("saga__agent")
        .order_by("-id")
        .first()
    )
    if request is None or not rights.is_answered(request):
        return frozenset()
    return frozenset(request.over_limits)
