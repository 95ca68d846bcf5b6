"""The question that the ledger asks of whoever `settings.SAGA_GATE` names.

The ledger knows nothing of approvals: it proposes, and is told allow, ask or deny. Every
call here happens inside the ledger's own transaction, so answer and state are one commit.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Literal, Protocol
from uuid import UUID

from django.conf import settings
from django.utils.module_loading import import_string


@dataclass(frozen=True, slots=True)
class Question:
    """Everything a policy may look at, about one direction of one step."""

    direction: str
    tool: str
    tool_version: str
    tier: str
    blast_radius: str
    args: Mapping[str, Any]
    agent: str
    saga: Mapping[str, Any]
    step: Mapping[str, Any]
    # Set by the ledger when it wants a person whatever the policy says: a deliberate
    # repeat, a suspected duplicate, a changed tool.
    must_ask: str = ""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the gate says, and by which rule of which policy."""

    kind: Literal["allow", "ask", "deny"]
    rule: str
    policy_digest: str
    terms: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Held:
    """What a request is bound to: exactly this will run, or nothing."""

    step: UUID
    saga: UUID
    direction: str
    args: Mapping[str, Any]
    args_digest: str
    tool: str
    tool_version: str
    tool_digest: str
    idempotency_key: str
    why: str = ""


@dataclass(frozen=True, slots=True)
class NotYet:
    """A yes stands, but it can still be taken back for this long."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Leaving:
    """A forward run that a worker is about to start, or that has happened."""

    step: UUID
    tool: str
    agent: str
    args: Mapping[str, Any]
    idempotency_key: str


@dataclass(frozen=True, slots=True)
class Overrun:
    """A run that would go over a limit: people are asked, or it is denied."""

    kind: Literal["ask", "deny"]
    why: str


class Gate(Protocol):
    def judge(self, question: Question) -> Verdict:
        """Take the verdict. An error in a rule is `ask`, never `allow`.

        Never raises, and changes nothing: it may be asked about a step that is there already.
        """

    def open(self, held: Held, verdict: Verdict) -> UUID:
        """Put the question to people; the request's id.

        An older request of this step and direction is superseded.
        """

    def recheck(self, held: Held) -> str | NotYet:
        """At the claim: '' when a yes to exactly this stands, else the reason it does not.

        Uses the yes up for the forward run that starts with it.
        """

    def reserve(self, leaving: Sequence[Leaving]) -> Mapping[UUID, Overrun]:
        """At the claim: take what these runs use of limits; those that a limit stops, by step.

        What is stopped has taken nothing.
        """

    def count(self, ran: Sequence[Leaving]) -> None:
        """These runs have happened: take what they use, though a limit be full.

        What they have taken and kept is not taken twice.
        """

    def close(self, steps: Iterable[UUID], why: str) -> None:
        """The steps will not run: cancel their open requests."""

    def requests(self, steps: Iterable[UUID]) -> Mapping[UUID, Mapping[str, Any]]:
        """Latest request of each step: {step: {"id", "direction", "state", "url"}}."""

    def decisions(self, saga: UUID) -> Mapping[str, Mapping[str, Any]]:
        """Every decision about a saga, {id: {"answer", "actor", "args_digest", "reason", …}}.

        Its entry must say the same under the same names (`verify_ledger`).
        """

    def decisions_in(
        self, rows: Mapping[str, Sequence[Mapping[str, Any]]]
    ) -> Mapping[str, Mapping[str, Any]]:
        """`decisions`, told from the gate's rows in an export, by table. Needs no database."""

    def lines(self, saga: UUID) -> Sequence[str]:
        """What the gate keeps of a saga, for its export: `{"row": …, "table": …}` each."""

    def leave(self, saga: UUID) -> None:
        """Delete what `lines` told: the saga leaves in this transaction, below its tombstone."""

    def put_back(self, rows: Mapping[str, Sequence[Mapping[str, Any]]]) -> None:
        """Insert what an export holds of a saga that comes back in this transaction."""

    def forget(self, older_than: timedelta) -> int:
        """Delete what the gate keeps without need, once older than this; how many rows.

        Not in the ledger's transaction: a batch at a time.
        """

    def sweep(self) -> int:
        """Act on what the clock brought (expiry, reminders); count of requests changed."""


@functools.cache
def gate() -> Gate:
    """The gate of this installation."""
    named: Gate = import_string(settings.SAGA_GATE)()
    return named
