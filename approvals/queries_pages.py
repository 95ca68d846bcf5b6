"""Requests as rows that pages can show: the inbox and one request. Keyset paging, no COUNT."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from typing import Any
from uuid import UUID

from django.db.models import Exists, OuterRef, Q, QuerySet
from django.db.models.functions import Now

from approvals import queries, rights
from approvals.models import Approval, Decision
from approvals.rights import Person
from approvals.states import Answer, ApprovalState
from ledger.errors import NotFound
from ledger.queries.shown import args_of, definition_of
from ledger.states import Direction

PAGE_SIZE = 50


@dataclass(frozen=True)
class RequestRow:
    """One request as one person sees it: who wants what, until when, how many have said yes."""

    approval: Approval
    person: Person

    @cached_property
    def state(self) -> ApprovalState:
        return self.approval.state_seen_at(self.now)

    @property
    def id(self) -> UUID:
        return self.approval.pk

    @property
    def now(self) -> datetime:
        """The database's clock when the request was read."""
        now: datetime = self.approval.now
        return now

    @property
    def step(self) -> Any:
        return self.approval.step

    @property
    def answers(self) -> Sequence[Decision]:
        said: Sequence[Decision] = self.approval.said
        return said

    @cached_property
    def bound_args(self) -> Any:
        """The arguments exactly as they are bound to the answer, secrets included: not to show."""
        return json.loads(self.approval.args_text)

    @cached_property
    def args(self) -> Any:
        """The arguments as people are shown them: complete, but for what is secret."""
        return args_of(self.bound_args, self.approval.tool, self.approval.tool_digest)

    @property
    def has_secrets(self) -> bool:
        """Whether something is masked; the digest is over what really runs all the same."""
        return bool(self.args != self.bound_args)

    @property
    def args_text(self) -> str:
        """The same as text."""
        return json.dumps(self.args, ensure_ascii=False)

    @property
    def who(self) -> str:
        """Undoing is the console's own wish; everything else an agent's."""
        forward = self.approval.direction == Direction.FORWARD
        return self.approval.saga.agent.name if forward else "The console"

    @cached_property
    def definition(self) -> Mapping[str, Any] | None:
        """What is declared of the tool that is asked about; None when nobody has kept it."""
        version = self.step.tool_version
        if version.digest == self.approval.tool_digest:
            declared: Mapping[str, Any] = version.definition
            return declared
        return definition_of(self.approval.tool, self.approval.tool_digest)

    @property
    def effect(self) -> str:
        """The tool's title as the end of 'wants to …'."""
        title: str = (self.definition or {}).get("title") or self.approval.tool
        if title[1:2].islower():
            title = title[0].lower() + title[1:]
        undo = {Direction.COMPENSATE: "undo", Direction.CORRECT: "send the correction for"}
        before = undo.get(Direction(self.approval.direction))
        return f"{before}: {title}" if before else title

    @property
    def is_open(self) -> bool:
        return self.state == ApprovalState.PENDING

    @cached_property
    def standing(self) -> tuple[bool, str]:
        return queries.standing(self.approval, self.person)

    @property
    def can_decide(self) -> bool:
        return self.standing[0]

    @property
    def why_not(self) -> str:
        return self.standing[1]

    @cached_property
    def lent_by(self) -> str:
        """In whose right this person's yes would be, when not in their own; '' otherwise."""
        if not self.can_decide or not self.person.covers:
            return ""
        voice = rights.voice_for(self.person, self.approval, Answer.APPROVE)
        return voice.right_of.username if voice and voice.cover else ""

    @property
    def can_take_back(self) -> bool:
        """Until the yes is used, a later no beats it (design section 6)."""
        unused = self.state == ApprovalState.APPROVED and self.approval.used_at is None
        return unused and rights.can_decide(self.person, self.approval)[0]

    @property
    def is_delayed(self) -> bool:
        """Approved, and nothing runs before the time in which the yes can be taken back is over."""
        from_ = self.approval.runs_from
        return self.state == ApprovalState.APPROVED and from_ is not None and from_ > self.now

    @property
    def yes(self) -> list[Decision]:
        return [answer for answer in self.answers if answer.answer == Answer.APPROVE]

    @property
    def quorum(self) -> str:
        """'1 of 2 said yes'."""
        needed = sum(need.count for need in self.approval.asked_needs())
        return f"{len(self.yes)} of {needed} said yes"

    @property
    def groups(self) -> str:
        return ", ".join(dict.fromkeys(need.group for need in self.approval.asked_needs()))

    @property
    def ends_at(self) -> datetime:
        return queries.ends_at(self.approval)

    @property
    def over_since(self) -> datetime:
        """When it ended: answered, swept, or past its end though nobody has swept it yet."""
        return self.approval.decided_at or self.approval.ended_at or self.approval.expires_at


@dataclass(frozen=True, slots=True)
class InboxPage:
    """One page of requests; `next_cursor` is None on the last."""

    rows: Sequence[RequestRow]
    next_cursor: UUID | None = None


def _rows(found: QuerySet[Approval], person: Person) -> list[RequestRow]:
    return [RequestRow(one, person) for one in found.select_related("step__tool_version")]


def waiting_for(person: Person) -> InboxPage:
    """What this person may decide and has not, the shortest time left first."""
    return InboxPage(_rows(queries.waiting_for(person)[:PAGE_SIZE], person))


def waiting(person: Person) -> InboxPage:
    """What waits for anybody, the shortest time left first."""
    found = queries.in_state(ApprovalState.PENDING).order_by("expires_at", "id")
    return InboxPage(_rows(found[:PAGE_SIZE], person))


def these(requests: Sequence[UUID], person: Person) -> InboxPage:
    """These requests, the shortest time left first."""
    found = queries.requests().filter(pk__in=requests).order_by("expires_at", "id")
    return InboxPage(_rows(found[:PAGE_SIZE], person))


def anything_waits() -> bool:
    return queries.in_state(ApprovalState.PENDING).exists()


def waiting_count(person: Person, limit: int) -> int:
    """How many requests wait for this person, counted no further than `limit`."""
    return queries.waiting_for(person)[:limit].count()


def ended(person: Person, *, before: UUID | None = None, mine: bool = False) -> InboxPage:
    """What was answered or ran out, newest first; `mine`: only what this person answered."""
    over = ~Q(state=ApprovalState.PENDING) | Q(expires_at__lte=Now())
    answered = Decision.objects.filter(approval=OuterRef("pk"), user_id=person.user_id or 0)
    found = queries.in_state("").filter(Exists(answered) if mine else over)
    if before is not None:
        found = found.filter(pk__lt=before)
    rows = _rows(found[: PAGE_SIZE + 1], person)
    shown = rows[:PAGE_SIZE]
    return InboxPage(shown, shown[-1].id if len(rows) > PAGE_SIZE else None)


def request_row(approval_id: UUID, person: Person) -> RequestRow:
    """One request. Raises NotFound."""
    rows = _rows(queries.requests().filter(pk=approval_id), person)
    if not rows:
        raise NotFound("There is no request with this id.")
    return rows[0]


def still_needed(row: RequestRow) -> list[str]:
    """'1 of approvers' for every need that is not met; nothing once the request is over."""
    if not row.is_open:
        return []
    return [
        f"{need['missing']} of {need['group']}"
        for need in queries.needs_of(row.approval)
        if need["missing"]
    ]
