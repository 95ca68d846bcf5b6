"""The scenes of a golden ledger that come to an end: sagas in every final state."""

from __future__ import annotations

import sys
from contextlib import suppress
from datetime import timedelta

from ledger.actions import Action
from ledger.errors import SagaError
from ledger.models import Saga, Step
from ledger.outcomes import Failed
from ledger.services import closing, operating
from ledger.services.acknowledging import acknowledge_residue
from ledger.services.archiving import Wish, archive
from ledger.services.operating import Pressed
from ledger.services.proposals import AlternativeProposal, Proposal
from ledger.services.recording import Finished, record
from ledger.services.restoring import restore_file
from tests.deploys import Till, deployed
from tests.goldencast import Play, let_run_out, take
from tests.goldenopen import blind, stuck
from tests.shop import broken, customer, work, work_saga


def completed(play: Play) -> None:
    saga = play.open("completed", customer("one"), customer("two", "bob@example.com"))
    play.committed(saga, "one", "two")
    play.shop.propose(saga, "one", "crm.customer", args={"email": "ada@example.com"})
    closing.complete(saga, bearer=play.shop.bearer)


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
