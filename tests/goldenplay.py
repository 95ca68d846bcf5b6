"""The scenes of a golden ledger: sagas brought into every state by what brings them there.

Agents propose, people decide, shifts work against the payment server; a worker that was killed
is a claim that nobody records. Nothing is written past the services, but for a lease that is
let run out early and a request's end that is brought forward, as the tests of both do.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

from django.conf import settings
from django.core.management import call_command
from django.db import connection
from django.test import override_settings

from approvals.models import Approval, Review
from approvals.services import deciding, reopening, reviewing
from ledger import outbox
from ledger.actions import Action
from ledger.bearer import Bearer
from ledger.errors import SagaError
from ledger.gate import Verdict
from ledger.models import Attempt, OutboxMessage, Saga, Step
from ledger.outcomes import Failed
from ledger.services import closing, freezing, operating
from ledger.services.acknowledging import acknowledge_residue
from ledger.services.archiving import Wish, archive
from ledger.services.checkpoints import anchor
from ledger.services.claiming import Assignment, claim
from ledger.services.operating import Pressed
from ledger.services.proposals import AlternativeProposal, Proposal
from ledger.services.recording import Finished, record
from ledger.services.restoring import restore_file
from ledger.services.shifts import ring_row
from ledger.tools.installed import registry
from tests.approvalcast import Case, ask_as_the_ledger_does
from tests.deploys import Till, deployed
from tests.shop import Shop, broken, customer, work, work_saga


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


def completed(play: Play) -> None:
    saga = play.open("completed", customer("one"), customer("two", "bob@example.com"))
    play.committed(saga, "one", "two")
    play.shop.propose(saga, "one", "crm.customer", args={"email": "ada@example.com"})
    closing.complete(saga, bearer=play.shop.bearer)


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


def compensated(play: Play) -> None:
    saga = play.open("compensated", customer("one", "carl@example.com"), broken("two"))
    work_saga(saga, "compensated")


def aborted(play: Play) -> None:
    saga = play.open("aborted", customer("one", "dora@example.com"))
    play.committed(saga, "one")
    play.shop.propose(saga, "note", "notes.send", args={"email": "dora@example.com"})
    play.committed(saga, "note")
    play.shop.propose(saga, "refund", "payments.refund", args={"charge": "ch_1", "amount": 1})
    play.shop.propose(saga, "later", "crm.customer", args={"email": "later@example.com"})
    closing.abort(saga, "the customer changed their mind", bearer=play.shop.bearer)
    work_saga(saga, "compensated")


def with_residue(play: Play) -> None:
    saga = stuck(play, "residue")
    step = Step.objects.get(saga_id=saga, state="stuck")
    operating.retry(step.pk, reason="perhaps now", actor=play.olivia.actor)
    work(lambda: Step.objects.filter(pk=step.pk, state="stuck").exists())
    operating.resolve(step.pk, "end_saga", reason="It stays.", actor=play.olivia.actor)
    work_saga(saga, "compensated")
    acknowledge_residue(saga, reason="Paid by hand.", actor=play.olivia.actor)


def stuck(play: Play, task: str = "stuck") -> UUID:
    """A dead letter: the target refuses the undo."""
    saga = play.open(task, Proposal("sticky", "crm.sticky", {"email": f"{task}@example.com"}))
    play.committed(saga, "sticky")
    closing.abort(saga, "it must be undone", bearer=play.shop.bearer)
    work_saga(saga, "stuck")
    return saga


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


def edited_by_an_operator(play: Play) -> None:
    """Past the pivot there is only forward: an operator's version of what the target refused."""
    saga = play.open("edited-by-an-operator")
    args = {"charge": play.shop.charge(), "amount": 5}
    play.shop.propose(saga, "settle", "payments.settle", args=args)
    play.committed(saga, "settle")
    play.shop.propose(saga, "change", "crm.broken", args={"id": "cus_of_nobody"})
    work_saga(saga, "stuck")
    somebody = play.shop.get("/v1/customers?limit=1")["data"][0]["id"]
    step = Step.objects.get(saga_id=saga, step_id="change")
    said = {"reason": "This one is meant.", "actor": play.olivia.actor}
    operating.retry(step.pk, args={"id": somebody}, **said)
    play.committed(saga, "change")


def confirmed(play: Play) -> None:
    """The code of a tool in Python changed under a step; a person said yes to the new code.

    Its name begins as `bench.noop`'s: who reads this ledger does not have the tool.
    """
    folder = play.folder.with_name("confirmed")
    folder.mkdir()
    sys.path.insert(0, str(folder))
    with deployed(Till(folder, "bench.till")) as till:
        saga = play.open("confirmed", Proposal("one", till.key, {"sum": 100}))
        changed = till.release("2")
        work(lambda: Step.objects.filter(saga_id=saga).exclude(held_why="").exists())
        said = {"tool_digest": changed, "reason": "Read it: only its words have changed."}
        step = Step.objects.get(saga_id=saga)
        operating.press(step.pk, Pressed(Action.CONFIRM, actor=play.olivia.actor, **said))
        play.committed(saga, "one")
    sys.path.remove(str(folder))
    closing.complete(saga, bearer=play.shop.bearer)


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


def revised(play: Play) -> None:
    saga = play.held("revised")
    play.decide(saga, deciding.request_change)
    args = {"charge": play_charge(saga), "amount": 50}
    play.shop.propose(saga, "refund", "payments.refund", args=args)
    play.decide(saga, deciding.approve)
    play.committed(saga, "refund")


def play_charge(saga: UUID) -> str:
    return str(Step.objects.get(saga_id=saga).args["charge"])


def alternative(play: Play) -> None:
    way = AlternativeProposal("crm.customer", {"email": "instead@example.com"})
    first = Proposal("instead", "crm.broken", {"id": "cus_of_nobody"}, alternatives=(way,))
    saga = play.open("alternative", first)
    play.committed(saga, "instead")


def deduplicated(play: Play) -> None:
    once = Proposal("one", "crm.exclusive", {"email": "once@example.com"})
    first = play.open("first-of-an-effect", once)
    second = play.open("second-of-an-effect")
    play.shop.propose(second, "again", once.tool, args=once.args)
    play.committed(first, "one")
    play.shop.propose(second, "again", once.tool, args=once.args)


def repeated(play: Play) -> None:
    once = {"email": "twice@example.com"}
    saga = play.open("repeated", Proposal("one", "crm.exclusive", once))
    play.committed(saga, "one")
    first = Step.objects.get(saga_id=saga)
    more = {"args": once, "repeat_of": first.pk, "reason": "a second one"}
    play.shop.propose(saga, "more", "crm.exclusive", **more)


def looked_up(play: Play) -> None:
    """The answer was cut off after the effect, and the probe found it."""
    play.shop.wire.cut_next("POST", "/v1/customers")
    saga = play.open("looked-up", customer("one", "cut@example.com"))
    play.committed(saga, "one")


def sent_again(play: Play) -> None:
    """A target that dedupes on our key is asked once more, forward and back."""
    play.shop.wire.cut_next("POST", "/v1/customers")
    saga = play.open("sent-again", Proposal("one", "notes.again", {"email": "re@example.com"}))
    play.committed(saga, "one")
    play.shop.wire.cut_next("DELETE", "/v1/customers")
    closing.abort(saga, "no longer wanted", bearer=play.shop.bearer)
    work(lambda: Saga.objects.get(pk=saga).state in ("compensated", "stuck"))


def undone_at_last(play: Play) -> None:
    """The target was busy when it was to undo."""
    saga = play.open("undone-at-last", customer("one", "busy@example.com"))
    play.committed(saga, "one")
    closing.abort(saga, "no longer wanted", bearer=play.shop.bearer)
    shift, taken = take(saga)
    record(shift, [Finished(taken, Failed("503: busy", retryable=True))])
    work_saga(saga, "compensated")


def late(play: Play) -> None:
    """A worker that woke after its lease; what it said is evidence."""
    saga = play.open("late", Proposal("one", "crm.blind", {"email": "late@example.com"}))
    shift, taken = take(saga)
    let_run_out(taken)
    record(shift, [Finished(taken, taken.tool.run(taken.call))])
    play.committed(saga, "one")


def answered(play: Play) -> None:
    """Nobody can look, so a person answers."""
    saga = blind(play, "answered")
    step = Step.objects.get(saga_id=saga)
    result = {"id": "cus_by_hand"}
    operating.resolve(
        step.pk, "happened", result=result, reason="It is in their list.", actor="person:olivia"
    )
    play.committed(saga, "one")


def skipped(play: Play) -> None:
    """An undo that an operator gave up, and a second word on it that came too late."""
    saga = stuck(play, "skipped")
    step = Step.objects.get(saga_id=saga, state="stuck")
    operating.press(step.pk, Pressed(Action.SKIP, "Leave it.", play.olivia.actor))
    work_saga(saga, "compensated")
    with suppress(SagaError):
        operating.press(step.pk, Pressed(Action.HAPPENED, "It is gone.", play.omar.actor))
    acknowledge_residue(saga, reason="Paid by hand.", actor=play.olivia.actor)


def contradicted(play: Play) -> None:
    """A person said that it had not happened, and then the worker said that it had."""
    saga = play.open("contradicted", Proposal("one", "crm.blind", {"email": "both@example.com"}))
    shift, taken = take(saga)
    let_run_out(taken)
    work_saga(saga, "stuck")
    step = Step.objects.get(saga_id=saga)
    operating.resolve(step.pk, "did_not_happen", reason="I looked.", actor=play.olivia.actor)
    play.committed(saga, "one")
    record(shift, [Finished(taken, taken.tool.run(taken.call))])
    operating.press(step.pk, Pressed(Action.ACKNOWLEDGE, "I see.", play.olivia.actor))


def blind(play: Play, task: str = "blind") -> UUID:
    """In doubt, with no way to look: it waits for a person."""
    play.shop.wire.cut_next("POST", "/v1/customers")
    saga = play.open(task, Proposal("one", "crm.blind", {"email": f"{task}@example.com"}))
    work_saga(saga, "stuck")
    return saga


def archived(play: Play) -> None:
    """Gone, and gone and back."""
    for task in ("archived", "back-again"):
        saga = play.open(task, Proposal("one", "crm.exclusive", {"email": f"{task}@example.com"}))
        play.committed(saga, "one")
        closing.complete(saga, bearer=play.shop.bearer)
        work_saga(saga, "completed")
    report = archive(Wish(timedelta(0), play.folder))
    assert report.path is not None
    (found,) = restore_file(report.path, only=saga)
    assert not found.why_not


# -- in flight, from here on: nobody works any more --------------------------------------------


def take(saga: UUID) -> tuple[UUID, Assignment]:
    """A worker's claim of the saga's step; whatever else was due stays in its hands, unrecorded."""
    shift = ring_row()
    (taken,) = [found for found in claim(shift, 16) if found.saga == saga]
    return shift, taken


def let_run_out(taken: Assignment) -> None:
    Attempt.objects.filter(pk=taken.attempt).update(lease_until="2020-01-01T00:00:00Z")
    outbox.sweep()


def waiting(play: Play) -> None:
    saga = play.held("waiting")
    args = {"charge": play.shop.charge(), "amount": 7}
    play.shop.propose(saga, "too", "payments.refund", args=args)
    play.decide(saga, deciding.approve, step__step_id="too")
    play.shop.propose(saga, "after", "crm.customer", args={"email": "after@example.com"})


def change_requested(play: Play) -> None:
    play.decide(play.held("change-requested"), deciding.request_change)


def approved_and_not_run(play: Play) -> None:
    play.decide(play.held("approved-and-not-run"), deciding.approve)
    hold_still()


def frozen(play: Play) -> None:
    saga = play.open("frozen", customer("one", "frozen@example.com"))
    other = play.open("thawed", customer("one", "thawed@example.com"))
    hold_still()
    freezing.freeze("saga", str(saga), reason="Look first.", actor=play.olivia.actor)
    stop = freezing.freeze("saga", str(other), reason="Look first.", actor=play.olivia.actor)
    freezing.lift(stop.pk, actor=play.olivia.actor)


def executing(play: Play) -> None:
    """A worker was killed after it had called, or before: nobody knows."""
    for task in ("killed-before-the-call", "killed-after-the-call"):
        saga = play.open(task, customer("one", f"{task}@example.com"))
        _, taken = take(saga)
        if "after" in task:
            taken.tool.run(taken.call)


def unknown(play: Play) -> None:
    saga = play.open("unknown", customer("one", "unknown@example.com"))
    _, taken = take(saga)
    let_run_out(taken)
    hold_still()


def asked_again(play: Play) -> None:
    """A yes was used up by a worker that was killed, and its refund did not happen."""
    saga = play.held("asked-again")
    play.decide(saga, deciding.approve)
    _, taken = take(saga)
    let_run_out(taken)
    hold_still(but=saga)
    work(lambda: Step.objects.filter(saga_id=saga, state="awaiting_approval").exists())


def retrying(play: Play) -> None:
    saga = play.open("retrying", customer("one", "retrying@example.com"))
    shift, taken = take(saga)
    record(shift, [Finished(taken, Failed("503: busy", retryable=True))])
    hold_still()


def compensating(play: Play) -> None:
    """On its way back, its undo under way in the hands of a worker that was killed."""
    saga = play.open("compensating", customer("one", "back@example.com"))
    shift, taken = take(saga)
    record(shift, [Finished(taken, taken.tool.run(taken.call))])
    closing.abort(saga, "no longer wanted", bearer=play.shop.bearer)
    take(saga)


def queued(play: Play) -> None:
    play.open("queued", customer("one", "queued@example.com"), customer("two", "next@example.com"))


def of_another_worker(play: Play) -> None:
    """A tool in Python that the reader of this ledger does not have (case C111)."""
    saga = play.open("elsewhere", Proposal("one", "bench.noop", {"caller": "golden", "number": 1}))
    hold_still(but=saga)
    apps = [app for app in settings.INSTALLED_APPS if app != "bench.noop"]
    with override_settings(INSTALLED_APPS=apps):
        registry.cache_clear()
        work(lambda: Step.objects.exclude(held_why="").filter(saga_id=saga).exists())
    registry.cache_clear()


def hold_still(but: UUID | None = None) -> None:
    """Whatever is due is due later, so that the next scene does not take it."""
    waiting = OutboxMessage.objects.filter(taken_at__isnull=True).exclude(saga_id=but)
    waiting.update(due_at=datetime.now(UTC) + timedelta(days=10))


def make_due() -> None:
    """The end of `hold_still`."""
    OutboxMessage.objects.filter(taken_at__isnull=True).update(due_at=datetime.now(UTC))


SETTLED = (
    archived, completed, approved, approved_by_two, taken_back, sent_again, undone_at_last,
    compensated, aborted, with_residue, rejected, expired, revised,
    alternative, deduplicated, repeated, looked_up, late, answered,
    skipped, contradicted, edited_by_a_person, edited_by_an_operator, confirmed, reopened,
    glass_broken, passed_on,
)  # fmt: skip
IN_FLIGHT = (
    blind, stuck, waiting, change_requested, approved_and_not_run, frozen, executing, unknown,
    asked_again, retrying, compensating, queued, of_another_worker,
)  # fmt: skip


def play_all(play: Play, say: Callable[[str], Any]) -> None:
    """Every scene, the settled first; in the end what is in flight is due."""
    for scene in (*SETTLED, *IN_FLIGHT):
        say(scene.__name__)
        scene(play)
    make_due()
    anchor()
