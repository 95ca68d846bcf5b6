"""Sagas for the pages to show, brought into their states by the services that do it in life.

Agents propose, the gate asks, people decide, and a worker's part is played by claiming and
recording: what a target answered is said by the test, everything else is the engine.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from django.test import Client

from approvals.models import Approval
from approvals.services import deciding
from approvals.states import ApprovalState
from ledger.bearer import Bearer
from ledger.models import Step
from ledger.models.fields import uuid7
from ledger.outcomes import Done, Failed, Outcome, Unknown
from ledger.services import opening, proposing, tokens
from ledger.services.assignments import Assignment
from ledger.services.claiming import claim
from ledger.services.proposals import Opening, Proposal
from ledger.services.recording import Finished, record
from tests.registered import registered

PASSWORD = "correct horse battery staple"


def sign_in(client: Client, person: Any, *, checked: bool = True) -> None:
    """As after the login page; without `checked`, as if that had been long ago."""
    client.force_login(person)
    if checked:
        session = client.session
        session["password_checked_at"] = datetime.now(UTC).isoformat()
        session.save()


TOOLS = """
[tools."payments.charge"]
title = "Charge a customer"
version = "3"
tier = "compensatable"
blast_radius = "medium"
resource = "customer:{args.customer}"
[tools."payments.charge".args]
type = "object"
required = ["customer", "amount"]
properties.customer.type = "string"
properties.amount = { type = "integer", minimum = 1 }
properties.currency = { type = "string", default = "eur" }
[tools."payments.charge".execute]
method = "POST"
url = "https://payments.example/v1/charges"
[tools."payments.charge".compensate]
method = "POST"
url = "https://payments.example/v1/charges/void"

[tools."orders.cancel"]
title = "Cancel an order"
version = "1"
tier = "compensatable"
blast_radius = "low"
[tools."orders.cancel".args]
type = "object"
required = ["order"]
properties.order.type = "string"
[tools."orders.cancel".execute]
method = "POST"
url = "https://orders.example/cancel"
[tools."orders.cancel".compensate]
method = "POST"
url = "https://orders.example/restore"

[tools."payments.refund"]
title = "Refund a payment"
version = "2"
tier = "pivot"
blast_radius = "high"
effect_key = "refund:{args.payment_intent}"
resource = "payment:{args.payment_intent}"
retries = 1
settle_s = 30
[tools."payments.refund".args]
type = "object"
required = ["payment_intent", "amount"]
properties.payment_intent.type = "string"
properties.amount = { type = "integer", minimum = 1 }
properties.currency = { type = "string", default = "eur" }
properties.note.type = "string"
[tools."payments.refund".execute]
method = "POST"
url = "https://payments.example/v1/refunds"
headers = { Authorization = "env:STAGE_PAYMENTS_AUTH" }
[tools."payments.refund".probe]
method = "GET"
url = "https://payments.example/v1/refunds"
match = "data[?metadata.saga_key == {idempotency_key}] | [0]"

[tools."mail.send"]
title = "Send a mail"
version = "1"
tier = "non_compensatable"
blast_radius = "low"
[tools."mail.send".args]
type = "object"
required = ["to", "text"]
properties.to.type = "string"
properties.text.type = "string"
[tools."mail.send".execute]
method = "POST"
url = "https://mail.example/send"
[tools."mail.send".correct]
method = "POST"
url = "https://mail.example/send-correction"
"""

REFUND = {
    "payment_intent": "pi_3PqLw8Kd81",
    "amount": 250_000,
    "note": "Order 8841 was cancelled\nbefore it shipped.",
}
# An answer of the target, for tests that do not care which.
DONE = Done({"id": "re_3PqLw8Kd81", "status": "succeeded"})


@dataclass
class Stage:
    """One agent, its owner, and the people around it."""

    shift: UUID = field(default_factory=uuid7)

    @cached_property
    def owner(self) -> Any:
        return tokens.seat_operator("frida", group="approvers", password=PASSWORD)

    @cached_property
    def approver(self) -> Any:
        return tokens.seat_operator("olivia", group="approvers", password=PASSWORD)

    @cached_property
    def second(self) -> Any:
        return tokens.seat_operator("ada", group="approvers", password=PASSWORD)

    @cached_property
    def oncall(self) -> Any:
        return tokens.seat_operator("oskar", group="oncall", password=PASSWORD)

    @cached_property
    def viewer(self) -> Any:
        return tokens.seat_operator("vera", group="viewers", password=PASSWORD)

    @cached_property
    def agent(self) -> Bearer:
        raw = tokens.issue_agent_token("refund-desk", owner=self.owner.get_username())
        return tokens.bearer(raw)

    def saga(self, name: str = "Refund order 8841", task: str = "refund-8841") -> UUID:
        opened = Opening(task, name, metadata={"env": "prod", "ticket": "OPS-1207"})
        return opening.open_saga(opened, bearer=self.agent).saga

    def propose(self, saga: UUID, step_id: str, tool: str, args: Any, reason: str = "") -> UUID:
        proposal = Proposal(step_id, tool, args, reason=reason)
        return proposing.propose(saga, proposal, bearer=self.agent).step

    def charge(self, saga: UUID, step_id: str = "charge") -> UUID:
        return self.propose(
            saga, step_id, "payments.charge", {"customer": "cus_81", "amount": 250_000}
        )

    def refund(self, saga: UUID, step_id: str = "refund", **args: Any) -> UUID:
        why = "The customer cancelled within 14 days."
        return self.propose(saga, step_id, "payments.refund", REFUND | args, why)

    def claim(self) -> list[Assignment]:
        return claim(self.shift, 20)

    def answer(self, assignments: list[Assignment], outcome: Outcome) -> None:
        record(self.shift, [Finished(found, outcome) for found in assignments])

    def work(self, outcome: Outcome = DONE) -> None:
        """Claim and record until nothing is due."""
        while assignments := self.claim():
            self.answer(assignments, outcome)

    def request(self, step: UUID) -> Approval:
        """The newest request about this step."""
        return Approval.objects.filter(step=step).latest("id")

    def decide(
        self, step: UUID, answer: str = "approve", by: Any = None, reason: str = "Checked."
    ) -> None:
        person = by or self.approver
        bearer = Bearer(user_id=person.pk, username=person.get_username())
        request = Approval.objects.get(step=step, state=ApprovalState.PENDING)
        decide = getattr(deciding, answer)
        decide(bearer, request.pk, args_digest=request.args_digest, reason=reason)

    def waiting_refund(self) -> tuple[UUID, UUID]:
        """A saga whose charge is done and whose refund waits for a person: (saga, step)."""
        saga = self.saga()
        self.charge(saga)
        self.work(Done({"id": "ch_3PqLw8"}))
        return saga, self.refund(saga)

    def unknown_refund(self, task: str = "refund-8790") -> tuple[UUID, UUID]:
        """A refund whose answer was cut off."""
        saga = self.saga("Refund order 8790", task)
        step = self.refund(saga, payment_intent=f"pi_{task}")
        self.decide(step)
        self.answer(self.claim(), Unknown("the connection was cut before an answer came"))
        return saga, step

    def stuck_undo(self, task: str = "order-8777") -> tuple[UUID, UUID]:
        """A saga on its way back whose only undo has used up its tries."""
        saga = self.saga("Order 8777", task)
        step = self.charge(saga)
        self.work()
        refused = self.propose(saga, "cancel", "orders.cancel", {"order": "8777"})
        self.answer(self.claim(), Failed("404: no such order"))
        self.work(Failed("403: this key may not void charges"))
        assert Step.objects.get(pk=refused).state == "failed"
        return saga, step


@pytest.fixture(name="stage")
def a_stage(
    db: None, settings: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Stage]:
    """A stage of its own, with the tools of this file registered. Nobody listens at their URLs."""
    monkeypatch.setenv("STAGE_PAYMENTS_AUTH", "Bearer of a test")
    with registered(settings, tmp_path, TOOLS):
        yield Stage()
