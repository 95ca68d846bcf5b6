"""What callers may send, field by field. Strict: nothing is converted, nothing is ignored."""

from __future__ import annotations

import re
import unicodedata
from datetime import UTC, datetime
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit
from uuid import UUID

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from ledger.reasons import MAX_CHARS, is_said, reason_fault

MAX_STEPS = 500


def _one_line(text: str) -> str:
    if fault := line_fault(text):
        raise ValueError(fault)
    return text


def line_fault(text: str) -> str:
    """Why a text cannot be a name, or ''. Names are shown, logged and hashed line by line."""
    if not text.isprintable():
        for character in text:
            if unicodedata.category(character) in ("Cc", "Zl", "Zp", "Cs"):
                return f"control characters such as U+{ord(character):04X} are not accepted"
    if not is_said(text):
        return "it is blank"
    return ""


def _reason(text: str) -> str:
    if fault := reason_fault(text):
        raise ValueError(fault)
    return text


def _uuid(text: str) -> str:
    try:
        UUID(text)
    except ValueError:
        raise ValueError("this is not an id (a UUID)") from None
    return text


def _webhook(text: str) -> str:
    address = urlsplit(text)
    if address.scheme not in ("http", "https") or not address.hostname:
        raise ValueError("this is not an http or https address")
    return _one_line(text)


_RFC3339 = re.compile(r"\d{4}-\d\d-\d\d[Tt ]\d\d:\d\d:\d\d(\.\d+)?([Zz]|[+-]\d\d:\d\d)")


def _moment(text: str) -> str:
    if _RFC3339.fullmatch(text) is None:
        raise ValueError("this is not a time such as 2030-01-31T12:00:00Z")
    try:
        moment(text)
    except OverflowError:
        # Postgres would keep the year 10000, and nobody could read it back.
        raise ValueError("this is before the year 1 or after 9999") from None
    return text


def moment(text: str) -> datetime:
    """An RFC 3339 time, in UTC: Postgres takes fewer offsets than the RFC does."""
    return datetime.fromisoformat(text.upper()).astimezone(UTC)


Line = Annotated[str, Field(min_length=1, max_length=200), AfterValidator(_one_line)]
Reason = Annotated[str, Field(min_length=1, max_length=MAX_CHARS), AfterValidator(_reason)]
Id = Annotated[str, AfterValidator(_uuid)]
Moment = Annotated[str, AfterValidator(_moment), Field(json_schema_extra={"format": "date-time"})]
Args = Annotated[
    dict[str, Any],
    Field(description="What the tool is called with: an object that fits its JSON Schema."),
]


Question = Annotated[
    str,
    Field(
        max_length=100,
        description="The `question` of `GET /steps/{id}/actions`: then the answer counts for what "
        "was seen and for nothing that came after it.",
    ),
]


class Asked(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class NewAlternative(Asked):
    """What to do instead when a step past the commitment point cannot be done."""

    tool: Line
    args: Args


class NewStep(Asked):
    """One intended side effect."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "step_id": "refund-1",
                    "tool": "payments.refund",
                    "args": {"payment_intent": "pi_123", "amount": 4200},
                    "reason": "The customer cancelled order 7.",
                }
            ]
        }
    )

    step_id: Line | None = Field(
        default=None,
        description="The step's name within its saga: the same on every retry. The header "
        "`Idempotency-Key` may stand for it.",
    )
    tool: Line = Field(description="A name from `GET /tools`.")
    args: Args
    reason: str = Field(default="", max_length=2000, description="Shown to whoever decides.")
    alternatives: list[NewAlternative] = Field(default_factory=list, max_length=20)
    repeat_of: Id | None = Field(
        default=None,
        description="The id of the step whose effect shall deliberately happen again. Needs a "
        "reason, and always a person.",
    )


class NewSaga(Asked):
    """One task of one agent."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "task_id": "order-7-cancel",
                    "name": "Cancel order 7",
                    "metadata": {"env": "prod"},
                }
            ]
        }
    )

    task_id: Line = Field(
        description="The task's name at your orchestrator: opening it again returns the same saga."
    )
    name: Line = Field(description="What people read.")
    metadata: dict[str, Any] = Field(default_factory=dict)
    steps: list[NewStep] = Field(default_factory=list, max_length=MAX_STEPS)
    retry_budget: int | None = Field(
        default=None, ge=0, le=10_000, description="Retries that all steps share."
    )
    webhook: Annotated[str, Field(max_length=2000), AfterValidator(_webhook)] | None = None


class Because(Asked):
    """Why."""

    reason: Reason


class Nothing(Asked):
    """No fields."""


class Answer(Asked):
    """An operator's act that needs nothing but its reason."""

    reason: Reason
    question: Question = ""


class Retry(Answer):
    """Another try; with `args` of those, under a new digest and through the gate."""

    args: Args | None = None


class Confirmation(Answer):
    """A yes to exactly this code."""

    tool_digest: str = Field(
        pattern="^[0-9a-f]{64}$", description="`confirms.tool_digest` of `GET /steps/{id}/actions`."
    )


class Resolution(Asked):
    """An operator's word on a step of which nobody knows whether it happened."""

    answer: Literal["happened", "did_not_happen", "end_saga"]
    result: Any = Field(default=None, description="With `happened`: what the target answered.")
    reason: Reason
    question: Question = ""


class NewFreeze(Asked):
    """A stop: nothing new leaves while it is active."""

    scope: Literal["all", "tool", "agent", "saga"]
    value: Line | None = Field(
        default=None, description="The tool's or agent's name or the saga's id; none with `all`."
    )
    reason: Reason
    expires_at: Moment | None = None
