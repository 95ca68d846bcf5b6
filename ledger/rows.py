"""Sagas and steps as they are read under the saga's lock, to be changed and written back."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field, fields
from typing import Any
from uuid import UUID

from ledger.states import SagaState, StepState, Tier, why_no_more_steps


@dataclass(slots=True)
class SagaRow:
    """A locked saga. Only the fields named in CHANGEABLE are written back."""

    id: UUID
    agent: str
    agent_id: UUID
    task_id: str
    name: str
    metadata: dict[str, Any]
    state: SagaState
    fence: int
    step_count: int
    retry_budget: int
    retries_used: int
    pivot_position: int | None
    started_by: str
    closed: bool
    ended_backward_why: str
    head_seq: int
    head_hash: str
    was: SagaState = field(init=False)
    dirty: bool = field(init=False, default=False)

    def __post_init__(self) -> None:
        self.state = SagaState(self.state)
        self.was = self.state

    @property
    def is_past_pivot(self) -> bool:
        return self.pivot_position is not None

    @property
    def why_no_more_steps(self) -> str:
        return why_no_more_steps(
            self.state, closed=self.closed, turned_back=bool(self.ended_backward_why)
        )

    @property
    def has_budget(self) -> bool:
        return self.retries_used < self.retry_budget

    def view(self) -> dict[str, Any]:
        """What tools and policies may see of a saga."""
        return {
            "id": str(self.id),
            "task_id": self.task_id,
            "name": self.name,
            "metadata": self.metadata,
        }


SAGA_COLUMNS = """g.id, a.name AS agent, g.agent_id, g.task_id, g.name, g.metadata, g.state,
    g.fence, g.step_count, g.retry_budget, g.retries_used, g.pivot_position, g.started_by,
    g.closed_at IS NOT NULL AS closed, g.ended_backward_why, g.head_seq, g.head_hash"""


@dataclass(frozen=True, slots=True)
class Variant:
    """What a step runs now: what was proposed, or one of its alternatives."""

    index: int
    tool: str
    tool_digest: str
    tool_version: str
    tier: Tier
    blast_radius: str
    args_text: str
    fingerprint: str
    idempotency_key: str
    resource: str
    verdict: str
    effect_key: str = ""

    def stored(self) -> dict[str, Any]:
        """As a step's `alternatives` keep it; its place in the list is its index."""
        return {name: value for name, value in asdict(self).items() if name != "index"}

    @property
    def args(self) -> dict[str, Any]:
        parsed: dict[str, Any] = json.loads(self.args_text)
        return parsed


@dataclass(slots=True)
class StepRow:
    """A step read under its saga's lock."""

    id: UUID
    saga_id: UUID
    step_id: str
    position: int
    revision: int
    tool: str
    tool_version_id: str
    version: str
    tier: Tier
    blast_radius: str
    args_text: str
    fingerprint: str
    idempotency_key: str
    effect_key: str
    resource: str
    alternatives: list[dict[str, Any]]
    alternative: int
    verdict: str
    verdict_rule: str
    policy_digest: str
    held_why: str
    confirmed_tool: str
    state: StepState
    fence: int
    attempts: int
    reclaims: int
    result_text: str | None
    error: dict[str, Any] | None
    residue: bool
    executed_seq: int | None
    was: StepState = field(init=False)
    fence_was: int = field(init=False)
    dirty: bool = field(init=False, default=False)

    def __post_init__(self) -> None:
        self.state = StepState(self.state)
        self.tier = Tier(self.tier)
        self.was = self.state
        self.fence_was = self.fence

    @property
    def result(self) -> Any:
        """The recorded forward result."""
        return None if self.result_text is None else json.loads(self.result_text)

    @property
    def variant(self) -> Variant:
        """What this step runs now."""
        return self.choice(self.alternative)

    def choice(self, index: int) -> Variant:
        """One of the things that it may run: what was proposed (0), or an alternative (from 1)."""
        if index:
            return Variant(index=index, **self.alternatives[index - 1])
        return Variant(
            index=0,
            tool=self.tool,
            tool_digest=self.tool_version_id,
            tool_version=self.version,
            tier=self.tier,
            blast_radius=self.blast_radius,
            args_text=self.args_text,
            fingerprint=self.fingerprint,
            idempotency_key=self.idempotency_key,
            resource=self.resource,
            verdict=self.verdict,
            effect_key=self.effect_key,
        )

    def former(self, old: Variant) -> dict[str, Any]:
        """As the step's `former` keeps a version that is no more, to be recognised by."""
        return {
            "revision": self.revision,
            "alternative": old.index,
            "tool": old.tool,
            "args_text": old.args_text,
            "fingerprint": old.fingerprint,
        }

    def view(self) -> dict[str, Any]:
        """What tools and policies may see of a step."""
        return {"id": str(self.id), "step_id": self.step_id, "position": self.position}


_STEP_ELSEWHERE = {"version": "v.version"}


def _step_columns(prefix: str) -> str:
    return ", ".join(
        f"{_STEP_ELSEWHERE.get(column.name, 's.' + column.name)} AS {prefix}{column.name}"
        for column in fields(StepRow)
        if column.init
    )


STEP_COLUMNS = _step_columns("")
# Saga and step in one row, to be told apart by place: both have an id, a state and a fence.
SAGA_AND_STEP_COLUMNS = f"{SAGA_COLUMNS}, {_step_columns('the_')}"
SAGA_WIDTH = sum(column.init for column in fields(SagaRow))
STEP_WIDTH = sum(column.init for column in fields(StepRow))
