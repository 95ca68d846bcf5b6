"""Reads of the list pages: sagas, agents, tools. Keyset paging, and never a COUNT."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from django.db.models import OuterRef, Q, QuerySet, Subquery

from ledger.gate import gate
from ledger.models import Agent, Saga, Step, Token, ToolVersion
from ledger.queries.pages_timeline import awaited, doubted
from ledger.states import STEP_FINISHED, StepState

PAGE_SIZE = 50


@dataclass(frozen=True, slots=True)
class SagaRow:
    saga: Saga
    done: int
    open_step: Step | None
    # What is to be said of that step.
    now: str = ""
    # How many of its effects stay in the world, for good, or may be there.
    residue: int = 0


@dataclass(frozen=True, slots=True)
class Page:
    """One page of rows; `next_cursor` is '' on the last."""

    rows: Sequence[Any]
    next_cursor: str


def _as_uuid(text: str) -> UUID | None:
    try:
        return UUID(text)
    except ValueError:
        return None


def find_sagas(*, state: str = "", agent: str = "", text: str = "", before: str = "") -> Page:
    """Newest first. `text` is a saga id, a task id, or the beginning of a name or task id."""
    found = Saga.objects.select_related("agent").order_by("-id")
    if state:
        found = found.filter(state=state)
    if agent:
        found = found.filter(agent__name=agent)
    if text:
        known = _as_uuid(text)
        starts = Q(task_id__startswith=text) | Q(name__startswith=text)
        found = found.filter(pk=known) if known else found.filter(starts)
    cursor = _as_uuid(before)
    if cursor:
        found = found.filter(pk__lt=cursor)
    sagas = list(found[: PAGE_SIZE + 1])
    more = len(sagas) > PAGE_SIZE
    sagas = sagas[:PAGE_SIZE]
    return Page(_with_progress(sagas), str(sagas[-1].pk) if more else "")


# A step that a reader of a list wants named, most urgent first.
_TELLING = (
    StepState.STUCK,
    StepState.UNKNOWN,
    StepState.AWAITING_APPROVAL,
    StepState.CHANGE_REQUESTED,
    StepState.COMPENSATING,
    StepState.EXECUTING,
    StepState.QUEUED,
)
# Sagas are small; a list of fifty reads at most this many steps to say how far each one is.
_MOST_STEPS = 5_000


def _with_progress(sagas: Sequence[Saga]) -> list[SagaRow]:
    ids = [saga.pk for saga in sagas]
    done: dict[UUID, int] = {}
    telling: dict[UUID, Step] = {}
    left: dict[UUID, int] = {}
    steps = Step.objects.filter(saga_id__in=ids).only(
        "id", "saga_id", "step_id", "state", "residue", "held_why", "tier", "alternative"
    )
    for step in steps[:_MOST_STEPS]:
        state = StepState(step.state)
        left[step.saga_id] = left.get(step.saga_id, 0) + step.residue
        if state in STEP_FINISHED:
            done[step.saga_id] = done.get(step.saga_id, 0) + 1
        elif state in _TELLING:
            best = telling.get(step.saga_id)
            if best is None or _TELLING.index(state) < _TELLING.index(StepState(best.state)):
                telling[step.saga_id] = step
    said = _said(telling.values())
    return [
        SagaRow(
            saga,
            done.get(saga.pk, 0),
            telling.get(saga.pk),
            said.get(saga.pk, ""),
            left.get(saga.pk, 0),
        )
        for saga in sagas
    ]


def _said(steps: Collection[Step]) -> dict[UUID, str]:
    """Of each step's saga what the step is at, in words: its state alone may say too much."""
    back = [step.pk for step in steps if step.state == StepState.COMPENSATING]
    requests = gate().requests(back) if back else {}
    return {step.saga_id: _words(step, awaited(step, requests.get(step.pk))) for step in steps}


def _words(step: Step, asked: str) -> str:
    if asked:
        return f"waits for a yes to its {asked}"
    if step.state == StepState.COMPENSATING and step.held_why:
        return doubted(step)
    return StepState(step.state).replace("_", " ")


def agent_names() -> list[str]:
    """For the filter; an installation has tens of agents."""
    return list(Agent.objects.order_by("name").values_list("name", flat=True)[:200])


@dataclass(frozen=True, slots=True)
class AgentRow:
    agent: Agent
    tokens: Sequence[Token]
    last_saga: Saga | None


def agents() -> list[AgentRow]:
    """Every agent with its live tokens and its newest saga."""
    newest = Saga.objects.filter(agent=OuterRef("pk")).order_by("-id").values("pk")[:1]
    found = list(
        Agent.objects.select_related("owner")
        .annotate(newest=Subquery(newest))
        .order_by("name")[:500]
    )
    tokens: dict[UUID, list[Token]] = {}
    live = Token.objects.filter(agent__in=found, revoked_at__isnull=True).order_by("-created_at")
    for token in live:
        if token.agent_id is not None:
            tokens.setdefault(token.agent_id, []).append(token)
    sagas = Saga.objects.in_bulk([agent.newest for agent in found if agent.newest])
    return [AgentRow(agent, tokens.get(agent.pk, []), sagas.get(agent.newest)) for agent in found]


def tool_versions() -> Mapping[str, list[ToolVersion]]:
    """Every version of every tool that a step was ever proposed for, newest first."""
    versions: dict[str, list[ToolVersion]] = {}
    seen: QuerySet[ToolVersion] = ToolVersion.objects.order_by("key", "-first_seen_at")[:2_000]
    for version in seen:
        versions.setdefault(version.key, []).append(version)
    return versions
