"""The documents that the API answers with, described for OpenAPI.

They describe, and tests hold the real answers against them; answers themselves are written
straight from ledger/queries, because validating our own rows again costs a third of a submit.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal
from uuid import UUID

from pydantic import BaseModel, ConfigDict, Field

from ledger.actions import Action, Trouble
from ledger.errors import SagaError
from ledger.states import BlastRadius, SagaState, StepState, Tier


class Answered(BaseModel):
    model_config = ConfigDict(extra="forbid")


class ApprovalLink(Answered):
    id: UUID
    state: str
    url: str = Field(description="The page on which a person decides.")


class ArchivedNote(Answered):
    """Where an archived saga is."""

    at: datetime
    export: str = Field(description="The name of the file.")


class StepDocument(Answered):
    """One step as it is now."""

    id: UUID
    saga_id: UUID
    step_id: str
    position: int
    tool: str
    tool_version: str
    args: dict[str, Any] | None = Field(description="Null once archived: the digest is kept.")
    args_digest: str = Field(description="SHA-256 of the canonical args (RFC 8785), hex.")
    idempotency_key: str = Field(description="What the target sees as Idempotency-Key.")
    tier: Tier
    state: StepState
    result: Any = Field(description="What the target answered; null until committed.")
    error: Any
    reason: str
    approval: ApprovalLink | None
    effect_of: UUID | None = Field(
        description="Set when this step answers for another: it already holds the effect."
    )
    attempts: int
    created_at: datetime
    finished_at: datetime | None
    archived: ArchivedNote | None = Field(
        default=None, description="Only there when the step's saga is archived."
    )


class ResidueDocument(Answered):
    """An effect of an ended saga that is still out in the world, or may be: `why` says which."""

    step_id: str
    tool: str
    idempotency_key: str
    since: datetime | None
    why: str


class SagaDocument(Answered):
    """One saga with its steps, in order."""

    id: UUID
    task_id: str
    name: str
    agent: str
    state: SagaState
    metadata: dict[str, Any] | None = Field(description="Null once archived.")
    steps: list[StepDocument]
    residue: list[ResidueDocument]
    created_at: datetime
    updated_at: datetime
    url: str = Field(description="The page of this saga.")
    archived: ArchivedNote | None = Field(
        default=None, description="Only there when the saga is archived."
    )


class ActionDocument(Answered):
    """One act that an operator may do now."""

    action: Action
    label: str
    does: str
    does_not: str
    method: str = Field(description="The call that does it, and its body's fixed members.")
    path: str
    body: dict[str, Any]


class ConfirmsDocument(Answered):
    """The code that a confirmation is for."""

    tool: str
    recorded_version: str
    recorded_digest: str
    version: str
    tool_digest: str


class AnswerDocument(Answered):
    """What an operator said about a step."""

    answer: str | None
    by: str
    at: datetime
    reason: str
    entry: int
    kind: str


class ActionsDocument(Answered):
    """What an operator may do about a step now."""

    step: UUID
    state: StepState
    trouble: Trouble | None = Field(description="Why it does not go on by itself; null: it does.")
    why: str
    direction: str
    question: str = Field(description="Send it with the act, so that it counts for this only.")
    actions: list[ActionDocument]
    confirms: ConfirmsDocument | None
    answers: list[AnswerDocument] = Field(description="What operators said so far, newest first.")


class EntryDocument(Answered):
    """One immutable fact. `hash` is over `prev_hash` and everything else here."""

    seq: int
    kind: str
    step_id: str | None
    at: datetime
    actor: str
    payload: dict[str, Any]
    prev_hash: str
    hash: str


class ToolDocument(Answered):
    """One tool that a step may name."""

    name: str
    title: str
    version: str
    tier: Tier
    blast_radius: BlastRadius
    args_schema: dict[str, Any] = Field(description="JSON Schema (2020-12) of the args.")


class FreezeDocument(Answered):
    """An operator's stop."""

    id: UUID
    scope: Literal["all", "tool", "agent", "saga"]
    value: str | None
    reason: str
    created_by: str
    created_at: datetime
    expires_at: datetime | None
    lifted_at: datetime | None
    lifted_by: str | None


class Page(Answered):
    next_cursor: str | None = Field(description="Send it as `cursor` for the next page.")


class SagaPage(Page):
    items: list[SagaDocument]


class EntryPage(Page):
    items: list[EntryDocument]


class ToolPage(Page):
    items: list[ToolDocument]


class FreezePage(Page):
    items: list[FreezeDocument]


class Problem(BaseModel):
    """Why not, and what to change (RFC 9457). `type` never changes; further members may come."""

    model_config = ConfigDict(
        extra="allow",
        json_schema_extra={
            "examples": [
                {
                    "type": "urn:saga-console:problem/missing-step-id",
                    "title": "The step has no identity",
                    "status": 400,
                    "detail": "Give `step_id` in the body, or the header Idempotency-Key.",
                }
            ]
        },
    )

    type: str = Field(
        description="Ends in one of: "
        + " · ".join(sorted(error.type for error in SagaError.__subclasses__()))
        + "; or about:blank, which means no more than the status."
    )
    title: str
    status: int
    detail: str
