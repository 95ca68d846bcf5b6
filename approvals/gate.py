"""The gate that `settings.SAGA_GATE` names: the ledger's questions, answered here."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta
from typing import Any
from uuid import UUID

from approvals import policy, queries
from approvals.services import archiving, expiring, rechecking, requesting, reserving, spreading
from ledger.gate import Held, Leaving, NotYet, Overrun, Question, Verdict


class Gate:
    """Implements `ledger.gate.Gate`; every call but `sweep` joins the ledger's transaction."""

    def judge(self, question: Question) -> Verdict:
        """By the policy of this process."""
        return policy.judge(policy.current(), question)

    def open(self, held: Held, verdict: Verdict) -> UUID:
        """Ask people; an older request of this step and direction is superseded."""
        return requesting.ask(held, verdict)

    def recheck(self, held: Held) -> str | NotYet:
        """'' when a yes to exactly this stands, else why not, or that it can be taken back."""
        return rechecking.recheck(held)

    def reserve(self, leaving: Sequence[Leaving]) -> Mapping[UUID, Overrun]:
        """Take what these runs use of the limits, in the claim's own transaction."""
        limits = policy.current().limits
        return reserving.reserve(limits, leaving) if limits and leaving else {}

    def count(self, ran: Sequence[Leaving]) -> None:
        """Take what these runs have used of the limits: they have happened."""
        limits = policy.current().limits
        if limits and ran:
            reserving.count(limits, ran)

    def close(self, steps: Iterable[UUID], why: str) -> None:
        """The steps will not run: withdraw what is asked about them."""
        requesting.withdraw(steps, why)

    def requests(self, steps: Iterable[UUID]) -> Mapping[UUID, Mapping[str, Any]]:
        """Newest request of each step: {step: {"id", "direction", "state", "url"}}."""
        return queries.newest_of_steps(steps)

    def decisions(self, saga: UUID) -> Mapping[str, Mapping[str, Any]]:
        """What people said about a saga, in the words of its entries."""
        return queries.decisions_as_told(saga)

    def decisions_in(
        self, rows: Mapping[str, Sequence[Mapping[str, Any]]]
    ) -> Mapping[str, Mapping[str, Any]]:
        """The same, told from the rows of an export."""
        return archiving.decisions_in(rows)

    def lines(self, saga: UUID) -> Sequence[str]:
        """Requests and decisions, as lines of an export."""
        return archiving.lines(saga)

    def leave(self, saga: UUID) -> None:
        """Delete what leaves with its saga."""
        archiving.leave(saga)

    def put_back(self, rows: Mapping[str, Sequence[Mapping[str, Any]]]) -> None:
        """Insert what comes back with its saga."""
        archiving.put_back(rows)

    def forget(self, older_than: timedelta) -> int:
        """Delete what counts for no limit any more, and is older than this; how many rows."""
        return archiving.forget(older_than)

    def sweep(self) -> int:
        """End requests whose time is over, and write what people are told; how many ended."""
        changed = expiring.sweep()
        spreading.spread()
        return changed
