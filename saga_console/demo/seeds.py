"""Sagas in every state, each brought there by what brings sagas there: agents, people, workers.

Nothing is written past the services. Targets are the demo's; a shift of this process does
the workers' part, and what is left `executing`, `unknown` or `queued` is what a worker that
was killed at that moment would leave. Sown once: a second time changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from uuid import UUID, uuid4

from approvals.models import Approval
from approvals.services import deciding
from approvals.states import ApprovalState
from ledger.bearer import Bearer
from ledger.queries import documents
from ledger.services import closing, opening, proposing, shifts, tokens
from ledger.services.claiming import claim
from ledger.services.proposals import Opening, Proposal
from ledger.services.recording import Finished, record
from ledger.shift import ShiftLoop
from saga_console.demo import faultproxy, shop
from saga_console.demo.play import addresses
from saga_console.demo.targets import Addresses

GOOD_CARD, BAD_CARD = "pm_card_visa", "pm_card_chargeCustomerFail"
# Rounds of shifts after which something is wrong with the seeds, not with the world.
MAX_ROUNDS = 10
FIRST_TASK = "seed-refund-1001"
AGENT = "support-agent"


@dataclass(frozen=True)
class Field:
    """Where seeds grow: the targets, an agent and two people."""

    at: Addresses
    agent: Bearer
    olivia: Bearer

    def open(self, task: str, name: str, **metadata: Any) -> UUID:
        sown = Opening(task, name, metadata={"env": "demo", **metadata})
        return opening.open_saga(sown, bearer=self.agent).saga

    def propose(self, saga: UUID, step_id: str, tool: str, reason: str, **args: Any) -> UUID:
        proposal = Proposal(step_id, tool, args, reason=reason)
        return proposing.propose(saga, proposal, bearer=self.agent).step

    def charge(self, saga: UUID, order: str, amount: int, card: str = GOOD_CARD) -> UUID:
        money = {"order_id": order, "amount": amount, "currency": "eur", "payment_method": card}
        return self.propose(saga, "charge", "payments.charge", "The customer checks out.", **money)

    def decide(self, saga: UUID, answer: Callable[..., Any], reason: str) -> None:
        """Olivia answers what waits in this saga."""
        waiting = Approval.objects.get(saga_id=saga, state=ApprovalState.PENDING)
        answer(self.olivia, waiting.pk, args_digest=waiting.args_digest, reason=reason)


def plant(say: Callable[[str], Any]) -> None:
    """Sow everything, unless it has been sown."""
    people = {
        name: tokens.seat_operator(name, group=group)
        for name, group in (("olivia", "approvers"), ("oskar", "oncall"), ("vera", "viewers"))
    }
    agent = tokens.bearer(tokens.issue_agent_token(AGENT))
    tokens.revoke_agent_tokens(AGENT)  # nobody is told it
    olivia = Bearer(user_id=people["olivia"].pk, username="olivia")
    field = Field(addresses(), agent, olivia)
    first = Opening(FIRST_TASK, "Cancel order 1001", metadata={"env": "demo"})
    if not opening.open_saga(first, bearer=agent).created:
        say("this home is sown already; `make reset` first to sow it anew")
        return
    shop.place_orders(field.at, *(str(number) for number in range(1001, 1020)))
    for sow in (completed, provisioned, corrected, waiting, changed, rejected, stuck, aborted):
        say(sow.__doc__ or sow.__name__)
        sow(field)
    say(left_by_a_killed_worker.__doc__ or "")
    left_by_a_killed_worker(field)


def work() -> None:
    """Shifts, until nothing is due."""
    for _ in range(MAX_ROUNDS):
        ShiftLoop(uuid4()).run()
        if not shifts.waiting().rows:
            return
    raise RuntimeError("the seeds' work does not come to an end; see the log above")


def result_of(step: UUID) -> Any:
    """What the target answered."""
    found = documents.step(step, absolute=str)
    if found is None or found["state"] != "committed":
        raise RuntimeError(f"the step {step} did not come to pass: {found}")
    return found["result"]


def refund(field: Field, saga: UUID, payment: Any, amount: int, reason: str) -> UUID:
    """Ask for a refund, which waits for a person."""
    money = {"payment_intent": payment["id"], "amount": amount, "note": reason}
    return field.propose(saga, "refund", "payments.refund", reason, **money)


def paid(field: Field, task: str, name: str, order: str, amount: int) -> tuple[UUID, Any]:
    """A saga whose customer has paid, and the payment."""
    saga = field.open(task, name)
    step = field.charge(saga, order, amount)
    work()
    return saga, result_of(step)


def completed(field: Field) -> None:
    """completed: an order cancelled and refunded, after a yes"""
    saga, payment = paid(field, FIRST_TASK, "Cancel order 1001", "1001", 4200)
    field.propose(saga, "cancel", "orders.cancel", "The customer cancelled.", order_id="1001")
    refund(field, saga, payment, 4200, "The customer cancelled.")
    work()
    field.decide(saga, deciding.approve, "Checked with the customer.")
    closing.complete(saga, bearer=field.agent)
    work()


def provisioned(field: Field) -> None:
    """compensated: a machine and a zone undone, because the database was refused"""
    saga = field.open("seed-shop-lisbon", "Set up lisbon.example")
    why = "A new shop needs its own machine."
    machine = {"name": "lisbon", "image": "ami-03cf127a", "size": "t3.micro"}
    field.propose(saga, "instance", "cloud.instance", why, **machine)
    field.propose(saga, "zone", "dns.zone", why, name="lisbon.example")
    field.propose(saga, "database", "cloud.database", why, name="lisbon", subnet_group="eu-west")
    work()


def check_out(field: Field, order: str, to: str) -> UUID:
    """A checkout whose confirmation mail is out when the card is declined."""
    saga = field.open(f"seed-checkout-{order}", f"Check out order {order}")
    why = "The customer checks out."
    field.propose(saga, "confirm", "orders.confirm", why, order_id=order)
    letter = {"order_id": order, "to": to, "text": "Thank you! Your order is on its way.\n"}
    field.propose(saga, "mail", "mail.confirmation", why, **letter)
    work()
    field.decide(saga, deciding.approve, "The text is right.")
    field.charge(saga, order, 8900, BAD_CARD)
    work()
    return saga


def corrected(field: Field) -> None:
    """corrected, and compensating: two mails that needed an apology, one still without a yes"""
    saga = check_out(field, "1002", "ada@customer.example")
    field.decide(saga, deciding.approve, "Yes, say that we are sorry.")
    work()
    check_out(field, "1003", "grace@customer.example")


def waiting(field: Field) -> None:
    """awaiting_approval, and waiting behind it: refunds in the inbox"""
    for order, amount, reason in (
        ("1004", 12900, "The parcel came back unopened."),
        ("1005", 1990, "One of two items was missing."),
    ):
        saga, payment = paid(field, f"seed-refund-{order}", f"Refund order {order}", order, amount)
        refund(field, saga, payment, amount, reason)
        field.propose(saga, "cancel", "orders.cancel", reason, order_id=order)


def changed(field: Field) -> None:
    """change_requested, and paused: olivia wants another amount"""
    saga, payment = paid(field, "seed-refund-1006", "Refund order 1006", "1006", 6400)
    refund(field, saga, payment, 6400, "The customer kept one of two lamps.")
    field.decide(saga, deciding.request_change, "Only one lamp came back: refund 32.00 EUR.")


def rejected(field: Field) -> None:
    """rejected: a no, and what had been done is undone"""
    saga, payment = paid(field, "seed-refund-1007", "Refund order 1007", "1007", 25000)
    refund(field, saga, payment, 25000, "The customer says that it never arrived.")
    field.decide(saga, deciding.reject, "The carrier has a signature. Ask the customer first.")
    work()


def stuck(field: Field) -> None:
    """stuck: an order that was shipped by hand before it could be taken back"""
    saga = field.open("seed-checkout-1008", "Check out order 1008")
    field.propose(saga, "confirm", "orders.confirm", "The customer checks out.", order_id="1008")
    work()
    shop.ship_order(field.at, "1008")
    field.charge(saga, "1008", 3500, BAD_CARD)
    work()


def aborted(field: Field) -> None:
    """cancelled: the agent thought better of it before anybody had decided"""
    saga, payment = paid(field, "seed-refund-1009", "Refund order 1009", "1009", 5100)
    refund(field, saga, payment, 5100, "The customer wants the money back.")
    closing.abort(saga, "The customer changed her mind.", bearer=field.agent)
    work()


def left_by_a_killed_worker(field: Field) -> None:
    """executing, unknown and queued: what a killed worker leaves behind"""
    unsure, payment = paid(field, "seed-refund-1010", "Refund order 1010", "1010", 7700)
    refund(field, unsure, payment, 7700, "Arrived broken.")
    field.decide(unsure, deciding.approve, "The photos are clear.")
    shift = uuid4()
    shifts.begin(shift, "seed", 1)
    faultproxy.cut_next(field.at.proxy_url, "POST", "/v1/refunds")
    [mine] = claim(shift, 1)
    record(shift, [Finished(mine, mine.tool.run(mine.call))])
    for order, taken in (("1011", True), ("1012", False)):
        saga = field.open(f"seed-checkout-{order}", f"Check out order {order}")
        field.propose(saga, "confirm", "orders.confirm", "The customer checks out.", order_id=order)
        if taken:
            claim(shift, 1)
    shifts.end(shift, 2)
