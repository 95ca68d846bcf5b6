"""Every read of requests: documents of the API, lists by key, and what the ledger's pages show."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any
from uuid import UUID

from django.db.models import Exists, OuterRef, Prefetch, Q, QuerySet
from django.db.models.functions import Lower, Trim
from django.urls import reverse

from approvals import rights, sentences
from approvals.models import Approval, Decision
from approvals.rights import Person
from approvals.states import Answer, ApprovalState
from ledger import storage
from ledger.models.fields import ClockTimestamp
from ledger.queries.documents import Absolute, Document, stamp
from ledger.queries.shown import args_of

CLOCK = {"now": ClockTimestamp()}
SAID: str = "said"
# No account has this id: people are numbered from 1.
NO_ACCOUNT = 0

_NEWEST = """
SELECT DISTINCT ON (step_id) step_id, id, direction, CASE
    WHEN state = 'pending' AND expires_at <= clock_timestamp() THEN 'expired'
    ELSE state END AS state
FROM approvals_approval WHERE step_id = ANY(%s) ORDER BY step_id, id DESC
"""


def page_of(request: UUID) -> str:
    """The address of the page on which this request is decided."""
    return reverse("approvals:approval-detail", args=[request])


def newest_of_steps(steps: Iterable[UUID]) -> Mapping[UUID, Mapping[str, Any]]:
    """Newest request of each of these steps, in one statement."""
    return {
        row.step_id: {
            "id": row.id,
            "direction": row.direction,
            "state": row.state,
            "url": page_of(row.id),
        }
        for row in storage.rows(_NEWEST, [list(steps)])
    }


def decisions_as_told(saga: UUID) -> Mapping[str, Mapping[str, Any]]:
    """What people said about a saga, as the entry of each decision has it."""
    return {
        str(row.pk): {
            "approval": str(row.approval_id),
            "actor": f"person:{row.username}",
            "answer": row.answer,
            "args_digest": row.args_digest,
            "reason": row.reason,
            "via": row.via,
            "stands_for": row.stands_for_name or None,
            "incident": row.incident or None,
        }
        for row in Decision.objects.filter(approval__saga_id=saga)
    }


def requests() -> QuerySet[Approval]:
    """Requests with all that a document needs, and `now`, the database's clock."""
    return (
        Approval.objects.annotate(**CLOCK)
        .select_related("step", "saga__agent")
        .prefetch_related(Prefetch("decisions", Decision.objects.order_by("at"), SAID))
    )


def find(request: UUID) -> Approval | None:
    """One request with all that a document needs."""
    return requests().filter(pk=request).first()


def in_state(state: str) -> QuerySet[Approval]:
    """Requests that people are told to be in this state, newest first; "" for any."""
    is_over = Q(state=ApprovalState.PENDING, expires_at__lte=ClockTimestamp())
    found = requests().order_by("-id")
    match state:
        case "":
            return found
        case ApprovalState.PENDING:
            return found.filter(Q(state=state) & ~is_over)
        case ApprovalState.EXPIRED:
            return found.filter(Q(state=state) | is_over)
    return found.filter(state=state)


def waiting_for(person: Person) -> QuerySet[Approval]:
    """What this person may decide and has not, the one that ends first at the top.

    The same rules as `rights.can_decide`, as conditions; tests hold the two together.
    """
    if person.user_id is None or not person.is_active:
        return requests().none()
    mine = Decision.objects.filter(approval=OuterRef("pk"), user_id=person.user_id)
    rights_held = _could_use(person) | _lent_to(person)
    if not rights_held:
        return requests().none()
    return (
        in_state(ApprovalState.PENDING)
        .annotate(starter=Lower(Trim("saga__started_by")))
        .filter(rights_held)
        .exclude(Exists(mine))
        .exclude(saga__agent__owner_id=person.user_id)
        .exclude(starter__in=person.names)
        .order_by("expires_at", "id")
    )


def _could_use(person: Person) -> Q:
    """Requests that need a group of this person's."""
    groups = Q()
    for group in sorted(person.groups):
        groups |= Q(needs__contains=[{"group": group}])
    return groups


def _lent_to(person: Person) -> Q:
    """Requests that one of those whom this person stands in for could answer, and has not."""
    found = Q()
    for cover in person.covers:
        absent = cover.person
        groups = _could_use(absent)
        if not groups or not absent.is_active:
            continue
        used = Decision.objects.filter(
            Q(user_id=absent.user_id, stands_for=None) | Q(stands_for_id=absent.user_id),
            approval=OuterRef("pk"),
        )
        barred = Q(saga__agent__owner_id=absent.user_id) | Q(starter__in=absent.names)
        found |= groups & ~barred & Q(~Exists(used))
    return found


def decided_by(person: Person) -> QuerySet[Decision]:
    """What this person answered, newest first, each with its request in `approval`."""
    return (
        Decision.objects.filter(user_id=person.user_id or NO_ACCOUNT)
        .annotate(**CLOCK)
        .select_related("approval__step", "approval__saga__agent")
        .order_by("-id")
    )


def document(request: Approval, person: Person, absolute: Absolute) -> Document:
    """A request as lists and answers of the API show it to this person (design section 7)."""
    is_able, why_not = standing(request, person)
    state = request.state_seen_at(request.now)
    return {
        "id": str(request.pk),
        "state": state.value,
        "saga_id": str(request.saga_id),
        "step_id": request.step.step_id,
        "tool": request.tool,
        "tool_version": request.tool_version,
        # Digests are over what runs; what is shown has no secret in it.
        "args": args_of(json.loads(request.args_text), request.tool, request.tool_digest),
        "args_digest": request.args_digest,
        "policy": {"rule": request.rule, "digest": request.policy_digest},
        "needs": needs_of(request),
        "decisions": [_decision(decision) for decision in request.said],
        "expires_at": stamp(ends_at(request)),
        "can_decide": is_able,
        "why_not": why_not or None,
        "url": absolute(page_of(request.pk)),
        "created_at": stamp(request.created_at),
        "decided_at": stamp(request.decided_at),
    }


def in_full(request: Approval, person: Person, absolute: Absolute) -> Document:
    """`document`, and all else that a person should read before an answer."""
    newer = request.superseded_by_id
    return document(request, person, absolute) | {
        "step": str(request.step_id),
        "direction": request.direction,
        "agent": request.saga.agent.name,
        "idempotency_key": request.idempotency_key,
        "reason": request.step.reason,
        "why": request.why,
        "superseded_by": str(newer) if newer else None,
        "runs_from": stamp(request.runs_from),
        "used_at": stamp(request.used_at),
    }


def standing(request: Approval, person: Person) -> tuple[bool, str]:
    """Whether this person can decide it now: the right to, and a request that still waits."""
    is_allowed, why_not = rights.can_decide(person, request)
    if not is_allowed:
        return False, why_not
    told = state_sentence(request, person)
    if told:
        return False, told
    mine = next((d for d in request.said if d.user_id == person.user_id), None)
    if mine is not None:
        return False, f"You said yes {sentences.ago(request.now - mine.at)}; others must too."
    used = {d.stands_for_id or d.user_id for d in request.said if d.answer == Answer.APPROVE}
    open_to = rights.voices(person, request)
    if used and open_to and all(voice.right_of.user_id in used for voice in open_to):
        return False, sentences.right_used(open_to[0].right_of.username)
    return True, ""


def state_sentence(request: Approval, person: Person) -> str:
    """What became of it, told to this person; '' while it waits."""
    now = request.now
    match state := request.state_seen_at(now):
        case ApprovalState.PENDING:
            return ""
        case ApprovalState.EXPIRED:
            if request.escalate_to:
                return sentences.passed_on(request.expires_at, now, request.escalate_to)
            return sentences.expired(request.expires_at, now)
        case ApprovalState.SUPERSEDED:
            return sentences.superseded(request.over_at, now, request.ended_why)
        case ApprovalState.CANCELLED:
            return sentences.cancelled(request.over_at, now, request.ended_why)
    last = request.said[-1]
    is_own = person.user_id is not None and last.user_id == person.user_id
    return sentences.decided(state, last.username, last.at, now, last.reason, is_own=is_own)


def ends_at(request: Approval) -> datetime:
    """When the question ends; once it is approved, when the yes does."""
    if request.state == ApprovalState.APPROVED and request.yes_until:
        return request.yes_until
    return request.expires_at


def needs_of(request: Approval) -> list[Document]:
    """[{"group", "count", "have", "missing"}]: how far each need is met now."""
    # Rights are looked at again only where somebody has said yes already.
    yes = rights.counted_yes(request) if request.said else {}
    return [
        {
            "group": found.need.group,
            "count": found.need.count,
            "have": found.have,
            "missing": found.missing,
        }
        for found in rights.needs_progress(request, yes)
    ]


def _decision(decision: Decision) -> Document:
    return {
        "by": decision.username,
        "answer": decision.answer,
        "reason": decision.reason,
        "args_digest": decision.args_digest,
        "via": decision.via,
        "address": decision.address,
        "stands_for": decision.stands_for_name or None,
        "incident": decision.incident or None,
        "at": stamp(decision.at),
    }
