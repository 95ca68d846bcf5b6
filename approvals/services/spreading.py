"""What people are told about a request, and through which channels: the relay's work.

Notices are left by the database (approvals/messagewalls.py), by `remind`, and by `alarm` and
`reviewed` for a broken glass. A question that is passed on is a new request (docs/decisions/0067),
and so told of as one.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from typing import Any
from uuid import UUID

from django.contrib.auth import get_user_model

from approvals import queries
from approvals.models import Approval, Decision, Review
from approvals.queries_pages import RequestRow
from approvals.rights import Person
from approvals.states import STATE_OF, ApprovalState
from ledger import keys
from ledger.channels import EVERYBODY, Channel
from ledger.letters import Content
from ledger.queries.documents import stamp
from ledger.queries.shown import args_of
from ledger.services import telling
from ledger.services.tokens import OPERATING_GROUPS

KINDS = "approval.%"
REMINDER = "approval.reminder"
GLASS, REVIEWED = "approval.break_glass", "approval.reviewed"
_NOBODY = Person(None, "")
STATES = frozenset(state.value for state in ApprovalState)
_ANSWERS = {f"approval.{state}": answer for answer, state in STATE_OF.items()}
# What is told of while the request waits. All other news is of what became of it.
_ASKING = frozenset({"approval.requested", REMINDER})


def remind(request: UUID, round_no: int) -> bool:
    """Tell those who are asked once more; joins the caller's transaction.

    `round_no` numbers the reminders from 1. False when this one was sent before.
    """
    saga = Approval.objects.values_list("saga_id", flat=True).get(pk=request)
    return telling.tell(saga, request, REMINDER, round_no=round_no)


def alarm(request: Approval) -> bool:
    """Tell loudly that the glass was broken; joins the deciding transaction."""
    return telling.tell(request.saga_id, request.pk, GLASS)


def reviewed(request: Approval) -> bool:
    """Tell the same people what the review found; joins the closing transaction."""
    return telling.tell(request.saga_id, request.pk, REVIEWED)


def spread() -> int:
    """Turn notices about requests into messages; how many notices. Safe in many processes."""
    return telling.spread_all(KINDS, _spread)


def _spread(notice: Any) -> None:
    request = queries.requests().select_related("step__tool_version").get(pk=notice.about)
    groups = _asked(request)
    if notice.kind in (GLASS, REVIEWED):
        # Those who were passed over, and those who can close the review.
        groups |= set(OPERATING_GROUPS)
    content = _content(notice, RequestRow(request, _NOBODY))
    telling.write(notice, content, groups, lambda channel: _recipients(channel, groups))


def _asked(request: Approval) -> set[str]:
    return {need.group for need in request.asked_needs()}


def _recipients(channel: Channel, groups: Collection[str]) -> Sequence[str]:
    """Addresses of a mail; the host of everything else. Members are those of now."""
    if not channel.members:
        return channel.to or [channel.where]
    told = groups if EVERYBODY in channel.groups else channel.groups.intersection(groups)
    users: Any = get_user_model().objects
    found = users.filter(is_active=True, groups__name__in=told).exclude(email="")
    return sorted(set(found.values_list("email", flat=True)))


def _content(notice: Any, row: RequestRow) -> Content:
    request = row.approval
    answer, review = _answer(notice, request), _review(notice, request)
    url = telling.page(queries.page_of(request.pk))
    shown = args_of(row.bound_args, request.tool, request.tool_digest)
    return Content(
        type=notice.kind,
        at=stamp(notice.at) or "",
        title=f"{_title(notice, answer, review)}: {row.who} wants to {row.effect}",
        facts=[fact for fact in _facts(notice, row, shown, answer, review) if fact[1]],
        url=url,
        data={
            "approval_id": str(request.pk),
            "saga_id": str(request.saga_id),
            "step_id": request.step.step_id,
            "agent": request.saga.agent.name,
            "tool": request.tool,
            "tool_version": request.tool_version,
            "direction": request.direction,
            "args": shown,
            "args_digest": request.args_digest,
            "policy": {"rule": request.rule, "digest": request.policy_digest},
            "needs": request.needs,
            "state": _state(notice, request),
            "by": answer.username if answer else None,
            "reason": answer.reason if answer else None,
            "incident": (answer.incident or None) if answer else None,
            "expires_at": stamp(request.expires_at),
            "superseded_by": str(request.superseded_by_id) if request.superseded_by_id else None,
            "url": url,
        },
    )


_TITLES = {
    "approval.requested": "Waiting for your answer",
    REMINDER: "Still waiting for an answer",
    "approval.approved": "Approved",
    "approval.rejected": "Rejected",
    "approval.change_requested": "Sent back for a change",
    "approval.expired": "Expired, nothing was run",
    "approval.superseded": "Replaced by another request",
    "approval.cancelled": "Withdrawn, nothing was run",
}


def _title(notice: Any, answer: Decision | None, review: Review | None) -> str:
    if notice.kind == GLASS and answer:
        return f"BREAK-GLASS: {answer.username} alone approved"
    if notice.kind == REVIEWED and review:
        return f"BREAK-GLASS: {review.closed_name} closed the review"
    return str(_TITLES.get(notice.kind, notice.kind))


def _state(notice: Any, request: Approval) -> str:
    """The state that the notice tells of, which the request may have left since."""
    told: str = notice.kind.removeprefix("approval.")
    if told in STATES:
        return told
    return str(ApprovalState.PENDING if notice.kind in _ASKING else ApprovalState.APPROVED)


def _answer(notice: Any, request: Approval) -> Decision | None:
    if notice.kind in (GLASS, REVIEWED):
        given = [one for one in request.said if one.incident]
    else:
        answer = _ANSWERS.get(notice.kind)
        given = [one for one in request.said if one.answer == answer]
    return given[-1] if given else None


def _review(notice: Any, request: Approval) -> Review | None:
    if notice.kind not in (GLASS, REVIEWED):
        return None
    return Review.objects.filter(approval=request).order_by("-id").first()


def _facts(
    notice: Any,
    row: RequestRow,
    shown: dict[str, Any],
    answer: Decision | None,
    review: Review | None,
) -> list[tuple[str, str]]:
    request = row.approval
    ends = f"{request.expires_at:%Y-%m-%d %H:%M} UTC, then it is a no"
    asks = notice.kind in _ASKING
    return [
        ("By", answer.username if answer else ""),
        ("Incident", answer.incident if answer else ""),
        ("Reason", answer.reason if answer else ""),
        *_of_review(notice, request, review),
        ("Because", "" if asks else request.ended_why),
        ("Agent", request.saga.agent.name),
        ("Saga", request.saga.name),
        ("Step", f"{request.step.step_id} ({request.tool} {request.tool_version})"),
        ("Arguments", json.dumps(shown, ensure_ascii=False, indent=1) if asks or review else ""),
        ("The agent says", request.step.reason if asks else ""),
        ("Why you are asked", (request.why or request.rule) if asks else ""),
        ("Needs", _needs(request) if asks else ""),
        ("Ends", ends if asks else ""),
        ("Digest", keys.short(request.args_digest)),
    ]


def _of_review(notice: Any, request: Approval, review: Review | None) -> list[tuple[str, str]]:
    if review is None:
        return []
    if notice.kind == REVIEWED:
        return [("Closed by", review.closed_name), ("Finding", review.finding)]
    return [
        ("Would have needed", _needs(request)),
        ("Review", "It is open, and somebody else has to review it and close it with a finding."),
    ]


def _needs(request: Approval) -> str:
    return ", ".join(f"{need.count} of {need.group}" for need in request.asked_needs())
