"""Reads of what needs a person on call: stuck, unknown, parked, and waiting for the agent."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from django.db.models import Q, QuerySet

from ledger.models import Attempt, Entry, Message, OutboxMessage, Step
from ledger.queries import archived, messages
from ledger.spoken import is_told_in
from ledger.states import STEP_FINISHED, StepState

# Nobody answers more than this in one sitting; the page says when there are more.
MOST_CASES = 50


@dataclass(frozen=True, slots=True)
class Case:
    """One step that somebody must look at, with the last that was heard of it."""

    step: Step
    since: datetime
    last_try: Attempt | None
    next_look: OutboxMessage | None

    @property
    def said(self) -> Any:
        """What the last attempt came to, or the step's own error; None when "why you" says it."""
        outcome = self.last_try.outcome if self.last_try else None
        told = outcome or self.step.error
        return None if is_told_in(self.step.held_why, told) else told


@dataclass(frozen=True, slots=True)
class Attention:
    """`unknown` holds effects and undos; `contradicted` what a late answer says otherwise;
    `buried` such an answer about an archived saga."""

    stuck: Sequence[Case]
    unknown: Sequence[Case]
    parked: Sequence[Case]
    contradicted: Sequence[Case]
    change_requested: Sequence[Case]
    undelivered: Sequence[Message]
    buried: Sequence[Any]
    more: bool

    @property
    def cases(self) -> Sequence[Case]:
        """All that an operator can do something about."""
        return [*self.stuck, *self.unknown, *self.parked, *self.contradicted]

    @property
    def is_quiet(self) -> bool:
        return not (self.cases or self.change_requested or self.undelivered or self.buried)


_IN_DOUBT = Q(state=StepState.UNKNOWN) | (Q(state=StepState.COMPENSATING) & ~Q(held_why=""))
_CONTRADICTED = Q(state__in=sorted(STEP_FINISHED)) & ~Q(held_why="")


def _steps(which: Q) -> list[Step]:
    related = Step.objects.select_related("saga", "saga__agent", "tool_version")
    return list(related.filter(which).order_by("id")[: MOST_CASES + 1])


def _unanswered(which: Q) -> list[Step]:
    # An effect that an operator gave up on is residue of its saga and waits for nobody.
    return _steps(which & Q(residue=False))


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
    buried = archived.unheard_words(MOST_CASES + 1)
    parked = _parked()
    waiting = {step.pk for step in parked}
    stuck, doubted = _unanswered(Q(state=StepState.STUCK)), _unanswered(_IN_DOUBT)
    # What cannot even be looked for is told once, with the reason why it cannot.
    unknown = [step for step in doubted if step.pk not in waiting]
    changes = _unanswered(Q(state=StepState.CHANGE_REQUESTED))
    contradicted = _steps(_CONTRADICTED)
    found = (stuck, doubted, changes, parked, contradicted)
    undelivered = messages.undelivered()
    return Attention(
        stuck=_cases(stuck[:MOST_CASES]),
        unknown=_cases(unknown[:MOST_CASES]),
        parked=_cases(parked[:MOST_CASES]),
        contradicted=_cases(contradicted[:MOST_CASES]),
        change_requested=_cases(changes[:MOST_CASES]),
        undelivered=undelivered[:MOST_CASES],
        buried=buried[:MOST_CASES],
        more=max(len(one) for one in (*found, undelivered, buried)) > MOST_CASES,
    )


def _unfit() -> QuerySet[OutboxMessage]:
    """Messages that no code here may take."""
    return OutboxMessage.objects.filter(taken_at__isnull=True).exclude(parked_why="")


def _parked() -> list[Step]:
    related = _unfit().select_related("step__saga__agent", "step__tool_version")
    found = related.order_by("created_at", "id")[: MOST_CASES + 1]
    return list({message.step_id: message.step for message in found}.values())


def waiting_count(limit: int) -> int:
    """How many steps and messages need a person, counted no further than `limit`."""
    needing = Step.objects.filter((Q(state=StepState.STUCK) | _IN_DOUBT) & Q(residue=False))
    told_otherwise = Step.objects.filter(_CONTRADICTED)
    parked = _unfit().values("step")
    # Each branch has an index of its own, and a step that is in two of them counts once.
    steps = needing.values("pk").union(told_otherwise.values("pk"), parked)[:limit].count()
    if steps < limit:
        steps += len(messages.undelivered()) + len(archived.unheard_words(limit))
    return min(limit, steps)
