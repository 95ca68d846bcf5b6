"""Who plays a golden ledger, and the two ways in which time is helped along."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

from django.db import connection

from approvals.models import Approval
from ledger import outbox
from ledger.bearer import Bearer
from ledger.models import Attempt, OutboxMessage, Step
from ledger.services.claiming import Assignment, claim
from ledger.services.proposals import Proposal
from ledger.services.shifts import ring_row
from tests.shop import Shop, work


@dataclass
class Play:
    """Who acts: the shop with its agent, and two people who may approve."""

    shop: Shop
    olivia: Bearer
    omar: Bearer
    folder: Path

    def open(self, task: str, *steps: Proposal) -> UUID:
        return self.shop.open(*steps, task_id=task)

    def held(self, task: str) -> UUID:
        """A saga whose refund waits for a person."""
        saga = self.open(task)
        args = {"charge": self.shop.charge(), "amount": 100}
        self.shop.propose(saga, "refund", "payments.refund", args=args, reason="The order is void.")
        return saga

    def decide(
        self, saga: UUID, answer: Callable[..., Any], person: Bearer | None = None, **which: Any
    ) -> None:
        asked = Approval.objects.get(saga_id=saga, state="pending", **which)
        answer(person or self.olivia, asked.pk, args_digest=asked.args_digest, reason="Looked at.")

    def committed(self, saga: UUID, *step_ids: str) -> None:
        def are() -> bool:
            found = Step.objects.filter(saga_id=saga, step_id__in=step_ids, state="committed")
            return found.count() == len(step_ids)

        work(are)


def bring_forward(saga: UUID, column: str) -> None:
    """What the saga's open request waits for is now."""
    with connection.cursor() as cursor:
        cursor.execute("ALTER TABLE approvals_approval DISABLE TRIGGER approvals_approval_frozen")
        cursor.execute(
            f"UPDATE approvals_approval SET {column} = clock_timestamp() "
            "WHERE saga_id = %s AND state = 'pending'",
            [saga],
        )
        cursor.execute("ALTER TABLE approvals_approval ENABLE TRIGGER approvals_approval_frozen")


def take(saga: UUID) -> tuple[UUID, Assignment]:
    """A worker's claim of the saga's step; whatever else was due stays in its hands, unrecorded."""
    shift = ring_row()
    (taken,) = [found for found in claim(shift, 16) if found.saga == saga]
    return shift, taken


def let_run_out(taken: Assignment) -> None:
    Attempt.objects.filter(pk=taken.attempt).update(lease_until="2020-01-01T00:00:00Z")
    outbox.sweep()


def hold_still(but: UUID | None = None) -> None:
    """Whatever is due is due later, so that the next scene does not take it."""
    waiting = OutboxMessage.objects.filter(taken_at__isnull=True).exclude(saga_id=but)
    waiting.update(due_at=datetime.now(UTC) + timedelta(days=10))


def make_due() -> None:
    """The end of `hold_still`."""
    OutboxMessage.objects.filter(taken_at__isnull=True).update(due_at=datetime.now(UTC))
