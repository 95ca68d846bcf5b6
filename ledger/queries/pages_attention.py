"""Reads of what needs a person on call: stuck, unknown, parked, and waiting for the agent."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from ledger.models import Attempt, Entry, Message, OutboxMessage, Step
from ledger.queries import messages
from ledger.states import StepState

# Nobody answers more than this in one sitting; the page says when there are more.
MOST_CASES = 50
_NEEDS_ANSWER = (StepState.STUCK, StepState.UNKNOWN)


@dataclass(frozen=True, slots=True)
class Case:
    """One step that somebody must look at, with the last that was heard of it."""

    step: Step
    since: datetime
    last_try: Attempt | None
    next_look: OutboxMessage | None

    @property
    def is_stuck(self) -> bool:
        return self.step.state == StepState.STUCK

    @property
    def said(self) -> Any:
        """What the last attempt came to, or the step's own error."""
        outcome = self.last_try.outcome if self.last_try else None
        return outcome or self.step.error


@dataclass(frozen=True, slots=True)
class Attention:
    stuck: Sequence[Case]
    unknown: Sequence[Case]
    parked: Sequence[OutboxMessage]
    change_requested: Sequence[Case]
    undelivered: Sequence[Message]
    more: bool

    @property
    def is_quiet(self) -> bool:
        steps = self.stuck or self.unknown or self.parked or self.change_requested
        return not (steps or self.undelivered)


def _steps(state: StepState) -> list[Step]:
    related = Step.objects.select_related("saga", "saga__agent", "tool_version")
    # An effect that an operator gave up on is residue of its saga and waits for nobody.
    return list(related.filter(state=state, residue=False).order_by("id")[: MOST_CASES + 1])


def _since(steps: Sequence[Step]) -> dict[UUID, datetime]:
    """When each step came into its state. Few steps, each a short read of its saga's chain."""
    moments = {}
    for step in steps:
        told = Entry.objects.filter(saga=step.saga_id, step_id=step.step_id, state=step.state)
        last = told.order_by("-seq").values_list("at", flat=True).first()
        moments[step.pk] = last or step.created_at
    return moments


def _cases(steps: Sequence[Step]) -> list[Case]:
    tries: dict[UUID, Attempt] = {}
    for attempt in Attempt.objects.filter(step__in=steps).order_by("fence"):
        tries[attempt.step_id] = attempt
    due: dict[UUID, OutboxMessage] = {}
    for message in OutboxMessage.objects.filter(step__in=steps, taken_at__isnull=True):
        due[message.step_id] = message
    since = _since(steps)
    return [Case(s, since[s.pk], tries.get(s.pk), due.get(s.pk)) for s in steps]


def attention() -> Attention:
    """Everything that waits for an operator, oldest first."""
    stuck, unknown = _steps(StepState.STUCK), _steps(StepState.UNKNOWN)
    changes, parked = _steps(StepState.CHANGE_REQUESTED), _parked()
    undelivered = messages.undelivered()
    return Attention(
        stuck=_cases(stuck[:MOST_CASES]),
        unknown=_cases(unknown[:MOST_CASES]),
        change_requested=_cases(changes[:MOST_CASES]),
        parked=parked[:MOST_CASES],
        undelivered=undelivered[:MOST_CASES],
        more=max(len(one) for one in (stuck, unknown, changes, parked, undelivered)) > MOST_CASES,
    )


def _parked() -> list[OutboxMessage]:
    waiting = OutboxMessage.objects.filter(taken_at__isnull=True).exclude(parked_why="")
    related = waiting.select_related("step", "step__saga", "step__saga__agent")
    return list(related.order_by("due_at", "id")[: MOST_CASES + 1])


def waiting_count(limit: int) -> int:
    """How many steps and messages need a person, counted no further than `limit`."""
    steps = Step.objects.filter(state__in=_NEEDS_ANSWER, residue=False)[:limit].count()
    return steps if steps == limit else min(limit, steps + len(messages.undelivered()))
