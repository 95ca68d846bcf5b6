"""Every error that a caller can meet, one class a mistake.

SagaError
├── InvalidJson            400 invalid-json
├── InvalidArgs            422 invalid-args
├── MissingStepId          400 missing-step-id
├── UnknownTool            422 unknown-tool
├── TooLarge               413 too-large
├── Unauthorized           401 unauthorized
├── Forbidden              403 forbidden
├── NotFound               404 not-found
├── StepInFlight           409 step-in-flight
├── StepMismatch           422 step-mismatch
├── TaskMismatch           422 task-mismatch
├── EffectClaimed          422 effect-claimed
├── PreviouslyRejected     409 previously-rejected
├── SagaEnded              409 saga-ended
├── Frozen                 409 frozen
├── AlreadyDecided         409 already-decided
├── ApprovalExpired        410 approval-expired
├── StaleDigest            409 stale-digest
└── RateLimited            429 rate-limited

`detail` is the sentence for people and says what to change; `extra` are members of the
problem document (RFC 9457), among them `errors`: each fault with the JSON Pointer (RFC 6901) of
its place in the body that was sent. Pure: no Django.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, ClassVar


class SagaError(Exception):
    """A refusal that the caller can understand and act on."""

    type: ClassVar[str]
    status: ClassVar[int]
    title: ClassVar[str]

    def __init__(self, detail: str, *, headers: dict[str, str] | None = None, **extra: Any) -> None:
        super().__init__(detail)
        self.detail = detail
        self.headers = headers or {}
        self.extra = extra


class InvalidJson(SagaError):
    type, status, title = "invalid-json", 400, "The body is not acceptable JSON"


class InvalidArgs(SagaError):
    type, status, title = "invalid-args", 422, "A field or argument is not acceptable"


@contextmanager
def below(place: str) -> Iterator[None]:
    """What is found wrong here was sent at this JSON Pointer, and is told as being there."""
    try:
        yield
    except InvalidArgs as error:
        if not place:
            raise
        told = error.extra.get("errors") or [{"pointer": "", "detail": error.detail}]
        faults = [{**fault, "pointer": place + fault["pointer"]} for fault in told]
        raise InvalidArgs(f"At {place}: {error.detail}", errors=faults) from None


class MissingStepId(SagaError):
    type, status, title = "missing-step-id", 400, "The step has no identity"


class UnknownTool(SagaError):
    type, status, title = "unknown-tool", 422, "No such tool is registered"


class TooLarge(SagaError):
    type, status, title = "too-large", 413, "The body is too large"


class Unauthorized(SagaError):
    type, status, title = "unauthorized", 401, "A valid token is needed"


class Forbidden(SagaError):
    type, status, title = "forbidden", 403, "You may not do that"


class NotFound(SagaError):
    type, status, title = "not-found", 404, "There is no such thing here"


class StepInFlight(SagaError):
    type, status, title = "step-in-flight", 409, "The step is not finished"


class StepMismatch(SagaError):
    type, status, title = "step-mismatch", 422, "The step was already submitted differently"


class TaskMismatch(SagaError):
    type, status, title = "task-mismatch", 422, "The task was already opened differently"


class EffectClaimed(SagaError):
    type, status, title = "effect-claimed", 422, "Another step already claims this effect"


class PreviouslyRejected(SagaError):
    type, status, title = "previously-rejected", 409, "A person already said no to this"


class SagaEnded(SagaError):
    type, status, title = "saga-ended", 409, "The saga takes no more steps"


class Frozen(SagaError):
    type, status, title = "frozen", 409, "An operator has stopped this"


class AlreadyDecided(SagaError):
    type, status, title = "already-decided", 409, "It was already decided"


class ApprovalExpired(SagaError):
    type, status, title = "approval-expired", 410, "The request has expired"


class StaleDigest(SagaError):
    type, status, title = "stale-digest", 409, "What was shown is no longer what would run"


class RateLimited(SagaError):
    type, status, title = "rate-limited", 429, "Too many requests"
