"""The documents of approvals, described for OpenAPI; answers are written by approvals/queries.py.

Tests hold real answers against these, as with the ledger's own (ledger/api/answered.py).
"""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal
from uuid import UUID

from pydantic import BaseModel, ConfigDict, Field

from approvals.states import Answer, ApprovalState
from approvals.surface import SurfaceName
from ledger.states import Direction


class NewDecision(BaseModel):
    """What a person sends with an answer: the digest of what they saw, and why."""

    model_config = ConfigDict(
        extra="forbid",
        strict=True,
        json_schema_extra={
            "examples": [{"args_digest": "9f86d081…", "reason": "Agreed with the customer."}]
        },
    )

    args_digest: str = Field(
        min_length=1, max_length=64, description="`args_digest` of the approval as you read it."
    )
    reason: str = Field(
        default="", max_length=2000, description="Required for a no and for a change."
    )


class NewApproval(NewDecision):
    """A yes, to what was shown or to an edited version of it."""

    args: dict[str, Any] | None = Field(
        default=None,
        description="Edited arguments, the whole object: approved instead of what was shown.",
    )


class SeenItem(BaseModel):
    """One request as it was seen."""

    model_config = ConfigDict(extra="forbid", strict=True)

    id: str = Field(min_length=1, max_length=64)
    args_digest: str = Field(min_length=1, max_length=64)


class NewDecisions(BaseModel):
    """One answer to several requests, each bound to the digest that was seen."""

    model_config = ConfigDict(extra="forbid", strict=True)

    answer: Literal["approve", "reject"] = Field(
        description="`approve` only for what can be undone."
    )
    items: list[SeenItem] = Field(min_length=1, max_length=50)
    reason: str = Field(default="", max_length=2000, description="Required for a no.")


class _Document(BaseModel):
    model_config = ConfigDict(extra="forbid")


class PolicyDocument(_Document):
    """The rule that asked, and the digest of the policy that it is in."""

    rule: str
    digest: str


class NeedDocument(_Document):
    """How many people of one group are needed, have said yes, and are missing."""

    group: str
    count: int
    have: int
    missing: int


class DecisionDocument(_Document):
    """One person's answer, and the digest that this person was shown."""

    by: str
    answer: Answer
    reason: str
    args_digest: str
    via: SurfaceName
    address: str = Field(description="From which address it came; empty when there was none.")
    stands_for: str | None = Field(
        description="In whose right it was given, when somebody else's who is out of office."
    )
    incident: str | None = Field(description="The incident for which the glass was broken.")
    at: datetime


class ApprovalDocument(_Document):
    """A question to people, as it looks to the caller."""

    id: UUID
    state: ApprovalState
    saga_id: UUID
    step_id: str = Field(description="The agent's name for the step within its saga.")
    tool: str
    tool_version: str
    args: dict[str, Any] = Field(description="Exactly what will run.")
    args_digest: str
    policy: PolicyDocument
    needs: list[NeedDocument]
    decisions: list[DecisionDocument]
    expires_at: datetime = Field(
        description="When the question ends; once approved, when an unused yes ends."
    )
    can_decide: bool
    why_not: str | None
    url: str
    created_at: datetime
    decided_at: datetime | None


class ReasonDocument(_Document):
    """What became of one rule."""

    rule: str
    verdict: Literal["allow", "ask", "deny"]
    why: str
    decides: bool


class ExplanationDocument(_Document):
    """The rules of the policy of now, up to the one that decides. `recorded` is what stands."""

    policy: str = Field(description="The digest of the policy of now.")
    is_recorded: bool = Field(description="Whether that is the policy under which it was asked.")
    rules: list[ReasonDocument]


class LimitDocument(_Document):
    """One limit that is about this run, and how full it is now."""

    name: str
    says: str
    used: float
    would: float
    max: float
    is_over: bool


class ReopenedDocument(_Document):
    """Who let a rejected action be asked for again."""

    by: str
    reason: str
    at: datetime


class EditedDocument(_Document):
    """What the agent proposed, when a person has edited it since."""

    by: str
    args: dict[str, Any]
    args_digest: str


class ApprovalInFull(ApprovalDocument):
    """The approval, and all else that a person should read before an answer."""

    step: UUID = Field(description="The step's id, for GET /steps/{id}.")
    direction: Direction = Field(description="`compensate` and `correct` undo or answer an effect.")
    agent: str
    idempotency_key: str = Field(description="What the target will see as Idempotency-Key.")
    reason: str = Field(description="Why, in the agent's words.")
    why: str = Field(description="Why the console asks, beyond the rule.")
    superseded_by: UUID | None
    runs_from: datetime | None = Field(
        description="Nothing runs before this, once approved: until then the yes can be taken back."
    )
    used_at: datetime | None = Field(description="When the step was started under this yes.")
    unroutable: str | None = Field(
        description="Who is missing for it to be answered at all, or null."
    )
    explanation: ExplanationDocument
    edited: EditedDocument | None = Field(
        description="Before a person edited it; `args` is what runs."
    )
    rejected_variants: int = Field(
        description="How many other versions of this were rejected in this saga."
    )
    reopened: ReopenedDocument | None
    limits: list[LimitDocument] = Field(description="What this run would make of each limit.")


class DecidedDocument(ApprovalDocument):
    """The approval after the answer. `replayed`: the same answer had been recorded before."""

    replayed: bool


class BulkResult(_Document):
    """What became of one item. `skipped`: the world had gone on; `failed`: it was refused."""

    id: UUID
    outcome: Literal["applied", "skipped", "failed"]
    detail: str
    problem: str | None = Field(description="The type of the refusal, as problem documents end.")


class BulkDocument(_Document):
    """One result for each item, in the order sent."""

    items: list[BulkResult]


class ApprovalPage(_Document):
    items: list[ApprovalDocument]
    next_cursor: str | None = Field(description="Send it as `cursor` for the next page.")
