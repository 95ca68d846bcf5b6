"""The scenes of a golden ledger that turn on what people answer."""

from __future__ import annotations

from contextlib import suppress
from uuid import UUID

from django.core.management import call_command

from approvals.models import Approval, Review
from approvals.services import deciding, reopening, reviewing
from ledger import outbox
from ledger.errors import SagaError
from ledger.gate import Verdict
from ledger.models import Step
from ledger.services import closing
from tests.approvalcast import Case, ask_as_the_ledger_does
from tests.goldencast import Play, bring_forward, let_run_out, take
from tests.shop import work_saga


def play_charge(saga: UUID) -> str:
    return str(Step.objects.get(saga_id=saga).args["charge"])


def approved(play: Play) -> None:
    saga = play.held("approved")
    play.decide(saga, deciding.approve)
    play.committed(saga, "refund")
    closing.complete(saga, bearer=play.shop.bearer)


def approved_by_two(play: Play) -> None:
    saga = play.held("approved-by-two")
    step = Step.objects.get(saga_id=saga)
    Case(play.shop.bearer, saga, step.pk).ask_again(seconds=86_400, needs={"approvers": 2})
    for person in (play.olivia, play.omar):
        play.decide(saga, deciding.approve, person)
    play.committed(saga, "refund")


def taken_back(play: Play) -> None:
    """A yes, and a no before anything ran."""
    saga = play.held("taken-back")
    play.decide(saga, deciding.approve)
    asked = Approval.objects.get(saga_id=saga)
    deciding.reject(play.omar, asked.pk, args_digest=asked.args_digest, reason="Not this one.")
    work_saga(saga, "compensated")


def rejected(play: Play) -> None:
    saga = play.held("rejected")
    play.decide(saga, deciding.reject)
    work_saga(saga, "compensated")


def expired(play: Play) -> None:
    saga = play.held("expired")
    bring_forward(saga, "expires_at")
    late = Approval.objects.get(saga_id=saga)
    with suppress(SagaError):  # too late, and journaled as that
        deciding.approve(play.olivia, late.pk, args_digest=late.args_digest, reason="Now?")
    work_saga(saga, "compensated")


def edited_by_a_person(play: Play) -> None:
    """A person's version of a refund, kept beside the agent's."""
    saga = play.held("edited-by-a-person")
    asked = Approval.objects.get(saga_id=saga)
    less = {"charge": play_charge(saga), "amount": 40}
    said = {"args_digest": asked.args_digest, "reason": "Only the part that was late."}
    deciding.approve(play.olivia, asked.pk, args=less, **said)
    play.committed(saga, "refund")


def reopened(play: Play) -> None:
    """Rejected past the pivot; asked for again and refused, reopened, asked for again and held."""
    saga = play.held("reopened")
    play.decide(saga, deciding.approve)
    play.committed(saga, "refund")
    args = {"charge": play.shop.charge(), "amount": 3}
    play.shop.propose(saga, "more", "payments.refund", args=args)
    play.decide(saga, deciding.reject)
    with suppress(SagaError):
        play.shop.propose(saga, "once-more", "payments.refund", args=args)
    no = Approval.objects.get(saga_id=saga, state="rejected")
    said = {"args_digest": no.args_digest, "reason": "It was the wrong order."}
    reopening.reopen(play.omar, no.pk, **said)
    play.shop.propose(saga, "at-last", "payments.refund", args=args)
    play.decide(saga, deciding.approve)
    play.committed(saga, "at-last")


def glass_broken(play: Play) -> None:
    """One person alone, in an incident, and somebody else's look at it."""
    call_command("break_glass", "omar")
    saga = play.held("glass-broken")
    asked = Approval.objects.get(saga_id=saga)
    said = {"args_digest": asked.args_digest, "reason": "Payments are down."}
    deciding.break_glass(play.omar, asked.pk, incident="INC-7", **said)
    play.committed(saga, "refund")
    review = Review.objects.get(approval__saga_id=saga)
    reviewing.close(play.olivia, review.pk, finding="It was right.")


def passed_on(play: Play) -> None:
    """Nobody answered: reminded, then asked of others, who said yes."""
    saga = play.held("passed-on")
    now = Approval.objects.get(saga_id=saga)
    need = [{"group": "oncall", "count": 1}]
    terms = {"need": need, "expires_s": 3600, "remind_s": 60, "escalate_to": "approvers"}
    ask_as_the_ledger_does(now, Verdict("ask", now.rule, now.policy_digest, terms))
    for column in ("remind_at", "expires_at"):
        bring_forward(saga, column)
        outbox.sweep()
    play.decide(saga, deciding.approve)
    play.committed(saga, "refund")


def turned_late(play: Play) -> None:
    """A no while a refund was out: the saga turns back once that is known not to have happened."""
    saga = play.held("turned-late")
    play.decide(saga, deciding.approve)
    _, taken = take(saga)
    args = {"charge": play.shop.charge(), "amount": 4}
    play.shop.propose(saga, "more", "payments.refund", args=args)
    play.decide(saga, deciding.reject)
    let_run_out(taken)
    work_saga(saga, "compensated")


def revised(play: Play) -> None:
    saga = play.held("revised")
    play.decide(saga, deciding.request_change)
    args = {"charge": play_charge(saga), "amount": 50}
    play.shop.propose(saga, "refund", "payments.refund", args=args)
    play.decide(saga, deciding.approve)
    play.committed(saga, "refund")
