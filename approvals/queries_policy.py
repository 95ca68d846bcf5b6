"""Why a rule decides about a step, and which questions nobody can answer. Reads only."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any
from uuid import UUID

from django.contrib.auth import get_user_model

from approvals import queries_limits, quorum, rights, wording
from approvals.models import Approval
from approvals.policy import Policy, current, groups_of, terms_of
from approvals.queries_limits import Use
from approvals.quorum import Need
from approvals.rights import Person
from approvals.states import ApprovalState
from approvals.wording import Reason
from ledger import storage
from ledger.gate import Question
from ledger.models.fields import ClockTimestamp
from ledger.states import Direction

# All that the look needs: the inbox takes it at every visit.
_LIGHT = (
    *("state", "needs", "expires_at"),
    *("saga__started_by", "saga__agent__name", "saga__agent__owner_id"),
)
# Open questions that are looked at for somebody who can answer; far more than people can.
LOOKED_AT = 500

_STEP = """
SELECT s.id, s.step_id, s.position, s.tool, v.version, s.tier, s.blast_radius, s.args_text,
    s.idempotency_key, s.alternatives, s.verdict, s.verdict_rule, s.policy_digest,
    s.duplicate_of_id, s.repeat_of_id, g.id AS saga, g.task_id, g.name, g.metadata,
    a.name AS agent
FROM ledger_step s JOIN ledger_saga g ON g.id = s.saga_id
    JOIN ledger_agent a ON a.id = g.agent_id JOIN ledger_toolversion v
    ON v.digest = s.tool_version_id
WHERE s.id = %s
"""


@dataclass(frozen=True, slots=True)
class Judged:
    """A step as the gate saw it, and what was said then."""

    question: Question
    verdict: str
    rule: str
    policy_digest: str
    key: str
    doubt: str


def judged(step: UUID, direction: str = Direction.FORWARD, key: str = "") -> Judged | None:
    """The question that was asked about a step; with `key`, about the choice that has it."""
    row = storage.row(_STEP, [step])
    if row is None:
        return None
    runs = _choice(row, key)
    question = Question(
        direction=direction,
        tool=runs["tool"],
        tool_version=runs["tool_version"],
        tier=runs["tier"],
        blast_radius=runs["blast_radius"],
        args=json.loads(runs["args_text"]),
        agent=row.agent,
        saga={
            "id": str(row.saga),
            "task_id": row.task_id,
            "name": row.name,
            "metadata": row.metadata,
        },
        step={"id": str(row.id), "step_id": row.step_id, "position": row.position},
    )
    said = (row.verdict, row.verdict_rule, row.policy_digest)
    return Judged(question, *said, key or row.idempotency_key, _doubt(row))


def _choice(row: Any, key: str) -> Mapping[str, Any]:
    own = {
        "tool": row.tool,
        "tool_version": row.version,
        "tier": row.tier,
        "blast_radius": row.blast_radius,
        "args_text": row.args_text,
    }
    others: Iterable[Mapping[str, Any]] = row.alternatives
    return next((one for one in others if key and one["idempotency_key"] == key), own)


def _doubt(row: Any) -> str:
    """Why the ledger wants a person whatever the policy says, or ''."""
    if row.duplicate_of_id:
        return "it looks like a duplicate"
    return "it repeats an effect on purpose" if row.repeat_of_id else ""


def members(groups: Collection[str]) -> list[Person]:
    """The people with an active account in any of these groups."""
    users: Any = get_user_model().objects
    found = users.filter(is_active=True, groups__name__in=list(groups)).values_list("pk", flat=True)
    return list(rights.people(set(found)).values())


def unmeetable(policy: Policy) -> list[tuple[str, str]]:
    """Rules that ask more people than there are now: (rule, who is missing)."""
    people = members(groups_of(policy))
    found = []
    for rule, terms in terms_of(policy):
        missing = [_missing(terms.need, people)]
        if terms.escalate_to:
            others = Need(terms.escalate_to, sum(need.count for need in terms.need))
            missing.append(_missing((others,), people))
        if any(missing):
            found.append((rule, ", and later ".join(filter(None, missing))))
    return found


def _missing(need: Iterable[Need], people: Iterable[Person]) -> str:
    """'1 more of finance' for what these people together cannot give; ''."""
    yes = {person.username: person.groups for person in people}
    found = quorum.progress(tuple(need), yes)
    return " and ".join(f"{one.missing} more of {one.need.group}" for one in found if one.missing)


@dataclass(frozen=True, slots=True)
class Unroutable:
    """A question that nobody, or not enough people, can answer; `missing` says who."""

    request: Approval
    missing: str


def unroutable() -> list[Unroutable]:
    """Open questions that the people there are cannot answer, the shortest time left first."""
    waiting = Approval.objects.filter(state=ApprovalState.PENDING, expires_at__gt=ClockTimestamp())
    light = waiting.select_related("saga__agent").only(*_LIGHT)
    found = list(light.order_by("expires_at", "id")[:LOOKED_AT])
    people = members({need.group for one in found for need in one.asked_needs()})
    routed = [(one, why_unroutable(one, people)) for one in found]
    return [Unroutable(one, missing) for one, missing in routed if missing]


def why_unroutable(request: Approval, people: Iterable[Person] | None = None) -> str:
    """Who is missing for this question to be answered at all; '' when it can be.

    Who owns the agent or started the saga does not count, as when they decide.
    """
    if request.state != ApprovalState.PENDING:
        return ""
    if people is None:
        people = members({need.group for need in request.asked_needs()})
    able = [person for person in people if rights.can_decide(person, request)[0]]
    return _missing(request.asked_needs(), able)


def told(request: Approval) -> dict[str, Any]:
    """What the full document of a request says of policy and limits."""
    now = current()
    reasons, uses = explained(request)
    return {
        "unroutable": why_unroutable(request) or None,
        "explanation": {
            "policy": now.digest,
            "is_recorded": now.digest == request.policy_digest,
            "rules": [asdict(reason) for reason in reasons],
        },
        "limits": [
            {
                "name": use.limit.name,
                "says": use.sentence(),
                "used": float(use.used),
                "would": float(use.would),
                "max": float(use.limit.max),
                "is_over": use.is_over,
            }
            for use in uses
        ],
    }


def explained(request: Approval) -> tuple[list[Reason], list[Use]]:
    """Why the policy of now asks about this, and what the run would make of the limits."""
    found = judged(request.step_id, request.direction, request.idempotency_key)
    if found is None:
        return [], []
    question, now = found.question, current()
    uses: list[Use] = []
    if question.direction == Direction.FORWARD:
        uses = queries_limits.uses(
            now.limits, question.tool, question.agent, question.args, found.key
        )
    reasons = wording.reasons(now, question)
    if reasons[-1].verdict == "allow":
        # A duplicate, a repeat, a limit: the rule would let it run, and the console asks.
        allows = replace(reasons[-1], decides=False)
        asks = Reason("the console itself", "ask", request.why, True)
        reasons = [*reasons[:-1], allows, asks]
    return reasons, uses
