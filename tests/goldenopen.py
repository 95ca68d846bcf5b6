"""The scenes of a golden ledger that stay open: from here on nobody works any more."""

from __future__ import annotations

from uuid import UUID

from django.conf import settings
from django.test import override_settings

from approvals.services import deciding
from ledger.models import Step
from ledger.outcomes import Failed
from ledger.services import closing, freezing
from ledger.services.proposals import Proposal
from ledger.services.recording import Finished, record
from ledger.tools.installed import registry
from tests.goldencast import Play, hold_still, let_run_out, take
from tests.shop import customer, work, work_saga


def stuck(play: Play, task: str = "stuck") -> UUID:
    """A dead letter: the target refuses the undo."""
    saga = play.open(task, Proposal("sticky", "crm.sticky", {"email": f"{task}@example.com"}))
    play.committed(saga, "sticky")
    closing.abort(saga, "it must be undone", bearer=play.shop.bearer)
    work_saga(saga, "stuck")
    return saga


def blind(play: Play, task: str = "blind") -> UUID:
    """In doubt, with no way to look: it waits for a person."""
    play.shop.wire.cut_next("POST", "/v1/customers")
    saga = play.open(task, Proposal("one", "crm.blind", {"email": f"{task}@example.com"}))
    work_saga(saga, "stuck")
    return saga


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
