"""What an agent asks for, and what it is told. Plain values, no database."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal
from uuid import UUID


@dataclass(frozen=True, slots=True)
class AlternativeProposal:
    tool: str
    args: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Proposal:
    """One step as an agent submits it, parsed but not yet checked against its tool."""

    step_id: str
    tool: str
    args: Any
    reason: str = ""
    alternatives: tuple[AlternativeProposal, ...] = ()
    repeat_of: UUID | None = None


@dataclass(frozen=True, slots=True)
class Answer:
    """accepted: a new step · replayed: finished, its stored answer · in_flight: not finished.

    `step` is the step that answers; `effect_of` is set when that is another step than the
    one asked for, because it already holds the effect. `args` are those of the request, when
    the step is archived: only their digest was kept, and it is the same. `denied`: it is
    recorded, and the policy's no to it turns its saga back.
    """

    kind: Literal["accepted", "replayed", "in_flight"]
    step: UUID
    effect_of: UUID | None = None
    args: Mapping[str, Any] | None = None
    denied: bool = False


@dataclass(frozen=True, slots=True)
class Opening:
    task_id: str
    name: str
    metadata: Mapping[str, Any] = field(default_factory=dict)
    steps: tuple[Proposal, ...] = ()
    retry_budget: int | None = None
    webhook: str = ""


@dataclass(frozen=True, slots=True)
class Opened:
    saga: UUID
    created: bool
    answers: tuple[Answer, ...] = ()
