"""What people have already said about an action: rejected variants, reopenings, edits."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from approvals.models import Approval
from ledger import storage
from ledger.queries.documents import Document, stamp
from ledger.queries.shown import args_of
from ledger.states import Direction

# Other arguments of the same tool that people said no to in the same saga: an agent that asks
# with a little less each time is seen for what it does.
_VARIANTS = """
SELECT a.id, count(*) AS variants FROM approvals_approval a
JOIN approvals_approval r ON r.saga_id = a.saga_id AND r.direction = a.direction
    AND r.tool = a.tool AND r.state = 'rejected' AND r.args_digest <> a.args_digest
WHERE a.id = ANY(%s) AND a.direction = 'forward' GROUP BY a.id
"""
_REOPENED = """
SELECT substr(actor, length('person:') + 1) AS by, at, payload::jsonb ->> 'reason' AS reason
FROM ledger_entry WHERE saga_id = %s AND step_id = %s AND kind = 'approval.reopened'
    AND payload::jsonb ->> 'approval' = %s LIMIT 1
"""


@dataclass(frozen=True, slots=True)
class Reopened:
    by: str
    reason: str
    at: datetime


@dataclass(frozen=True, slots=True)
class Edited:
    """The agent's version of what a person has edited since, without its secrets."""

    by: str
    args: Any
    digest: str


def rejected_variants(requests: Sequence[UUID]) -> dict[UUID, int]:
    """How many variants of each were rejected in its saga; who has none is left out."""
    return {row.id: row.variants for row in storage.rows(_VARIANTS, [list(requests)])}


def reopened(request: Approval) -> Reopened | None:
    """Who reopened what this request's no had closed, if anybody did."""
    found = storage.row(_REOPENED, [request.saga_id, request.step.step_id, str(request.pk)])
    return None if found is None else Reopened(found.by, found.reason, found.at)


def edited(request: Approval) -> Edited | None:
    """What the agent proposed, when this request is about a person's version of it.

    After several edits it is still the agent's: the first of the run of versions that people
    replaced. `by` is who wrote the version that is asked about.
    """
    former = request.step.former
    text = ""
    for version in reversed(former):
        if not version.get("edited_by"):
            break
        text = version["args_text"]
        digest = version["fingerprint"]
    if not text or not _is_about_the_newest(request):
        return None
    args = args_of(json.loads(text), request.tool, request.tool_digest)
    return Edited(former[-1]["edited_by"], args, digest)


def _is_about_the_newest(request: Approval) -> bool:
    step = request.step
    if step.alternative:
        now = step.alternatives[step.alternative - 1]["fingerprint"]
    else:
        now = step.fingerprint
    return request.direction == Direction.FORWARD and request.args_digest == now


def told(request: Approval) -> Document:
    """The same for the API: `edited`, `rejected_variants`, `reopened`."""
    again, before = reopened(request), edited(request)
    return {
        "edited": before and {"by": before.by, "args": before.args, "args_digest": before.digest},
        "rejected_variants": rejected_variants([request.pk]).get(request.pk, 0),
        "reopened": again and {"by": again.by, "reason": again.reason, "at": stamp(again.at)},
    }
