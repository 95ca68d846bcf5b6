"""Reads of the inbox and of one request, as rows that pages can show. Keyset paging, no COUNT."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from django.db.models import Exists, OuterRef, Q, QuerySet
from django.utils import timezone

from approvals.models import Approval, Decision
from approvals.states import OPEN, Answer, ApprovalState
from ledger.errors import NotFound
from ledger.states import Direction

PAGE_SIZE = 50
# "Waits for me" looks at most at this many open requests for those that are mine.
MOST_OPEN = 500


@dataclass(frozen=True, slots=True)
class RequestRow:
    """One request as a line: who wants what, until when, and how many have said yes."""

    approval: Approval
    state: ApprovalState
    answers: Sequence[Decision]
    can_decide: bool = False
    why_not: str = ""

    @property
    def id(self) -> UUID:
        return self.approval.pk

    @property
    def step(self) -> Any:
        return self.approval.step

    @property
    def args(self) -> Any:
        """The arguments exactly as they are bound to the answer."""
        return json.loads(self.approval.args_text)

    @property
    def who(self) -> str:
        """Undoing is the console's own wish; everything else an agent's."""
        forward = self.approval.direction == Direction.FORWARD
        return self.approval.saga.agent.name if forward else "The console"

    @property
    def effect(self) -> str:
        """The tool's title as the end of 'wants to …'."""
        title = self.step.tool_version.definition.get("title") or self.approval.tool
        if title[1:2].islower():
            title = title[0].lower() + title[1:]
        undo = {Direction.COMPENSATE: "undo", Direction.CORRECT: "send the correction for"}
        before = undo.get(Direction(self.approval.direction))
        return f"{before}: {title}" if before else title

    @property
    def is_open(self) -> bool:
        return self.state == ApprovalState.PENDING

    @property
    def can_take_back(self) -> bool:
        """Until the yes is used, a later no beats it (design section 6)."""
        unused = self.state == ApprovalState.APPROVED and self.approval.used_at is None
        return unused and self.can_decide

    @property
    def yes(self) -> list[Decision]:
        return [answer for answer in self.answers if answer.answer == Answer.APPROVE]

    @property
    def quorum(self) -> str:
        """'1 of 2 said yes · approvers, finance'."""
        needs = self.approval.asked_needs()
        groups = ", ".join(dict.fromkeys(need.group for need in needs))
        return f"{len(self.yes)} of {sum(need.count for need in needs)} said yes · {groups}"

    @property
    def over_since(self) -> datetime | None:
        """When it ended: answered, swept, or past its end though nobody has swept it yet."""
        ended = self.approval.decided_at or self.approval.ended_at
        return ended if ended or self.is_open else self.approval.expires_at


# Says of one person and one request: may decide, and when not, why not.
Judge = Callable[[Approval], tuple[bool, str]]


@dataclass(frozen=True, slots=True)
class InboxPage:
    rows: Sequence[RequestRow]
    next_cursor: str


def _related() -> QuerySet[Approval]:
    return Approval.objects.select_related(
        "step__tool_version", "saga__agent__owner"
    ).prefetch_related("decisions")


def _row(approval: Approval, now: datetime, judge: Judge | None = None) -> RequestRow:
    answers = sorted(approval.decisions.all(), key=lambda answer: answer.at)
    state = approval.state_at(now)
    can, why_not = (False, "")
    if judge is not None and state in OPEN:
        can, why_not = judge(approval)
    return RequestRow(approval, state, answers, can, why_not)


def open_requests(judge: Judge, *, mine: bool) -> InboxPage:
    """What waits for people, the shortest time left first."""
    now = timezone.now()
    waiting = _related().filter(state=ApprovalState.PENDING, expires_at__gt=now)
    rows = [_row(found, now, judge) for found in waiting.order_by("expires_at")[:MOST_OPEN]]
    if mine:
        rows = [row for row in rows if row.can_decide]
    return InboxPage(rows[:PAGE_SIZE], "")


def anything_open() -> bool:
    now = timezone.now()
    return Approval.objects.filter(state=ApprovalState.PENDING, expires_at__gt=now).exists()


def ended_requests(*, before: UUID | None = None, by: int | None = None) -> InboxPage:
    """What was decided or ran out, newest first; with `by`, only what this person answered."""
    now = timezone.now()
    over = ~Q(state=ApprovalState.PENDING) | Q(expires_at__lte=now)
    found = _related().filter(over).order_by("-id")
    if by is not None:
        found = found.filter(Exists(Decision.objects.filter(approval=OuterRef("pk"), user=by)))
    if before is not None:
        found = found.filter(pk__lt=before)
    some = list(found[: PAGE_SIZE + 1])
    rows = [_row(approval, now) for approval in some[:PAGE_SIZE]]
    return InboxPage(rows, str(rows[-1].id) if len(some) > PAGE_SIZE else "")


def request_row(approval_id: UUID, judge: Judge | None = None) -> RequestRow:
    """One request. Raises NotFound."""
    found = _related().filter(pk=approval_id).first()
    if found is None:
        raise NotFound("There is no request with this id.")
    return _row(found, timezone.now(), judge)


def waiting_for(judge: Judge, limit: int) -> int:
    """How many open requests this person may decide, counted no further than `limit`."""
    now = timezone.now()
    waiting = Approval.objects.select_related("saga__agent__owner").prefetch_related("decisions")
    open_now = waiting.filter(state=ApprovalState.PENDING, expires_at__gt=now)
    return sum(judge(approval)[0] for approval in open_now.order_by("expires_at")[:limit])
