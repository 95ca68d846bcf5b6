"""Who drills: workers that take a drill, lose it, refuse it, or do not come."""

from __future__ import annotations

import threading
import time

from django.db import connection

from ledger import outbox
from ledger.legs import DrillState
from ledger.models import (
    Drill,
    Shift,
)
from ledger.services import drilling, shifts
from ledger.shift import ShiftLoop
from ledger.tools.installed import registry
from tests.drillcast import FAILED, WORKED, Yard, came, email, facts, work, yard
from tests.sockets import SocketTarget

__all__ = ["yard"]


def apart(loop: ShiftLoop) -> None:
    """A shift in a thread of this test, which leaves no connection behind."""
    loop.run()
    connection.close()


def test_a_worker_that_goes_away_leaves_an_interrupted_drill_that_never_runs_again(
    yard: Yard,
) -> None:
    drill = yard.ask()
    dead = shifts.ring_row()
    assert shifts.begin(dead, "a worker", 1)
    assert drilling.begin(dead)
    assert facts(drill).state == DrillState.RUNNING
    Shift.objects.filter(pk=dead).update(lease_until="2020-01-01T00:00:00Z")
    assert facts(drill).state == DrillState.INTERRUPTED  # at once, whether swept or not
    assert drilling.give_up() == 1
    assert facts(drill).said.startswith("The worker went away")
    assert not drilling.waits()
    assert drilling.begin(shifts.ring_row()) is None
    assert email(facts(drill)) not in yard.customers()
    yard.ask()  # and another one may be asked for


def test_what_a_worker_says_after_it_was_given_up_changes_nothing(yard: Yard) -> None:
    drill = yard.ask()
    shift = shifts.ring_row()
    begun = drilling.begin(shift)
    assert begun
    Shift.objects.filter(pk=shift).update(lease_until="2020-01-01T00:00:00Z")
    drilling.give_up()
    told = drilling.Told(drilling.Leg.EXECUTE, True, "done")
    assert not drilling.tell(drill, shift, told, 5)
    assert not drilling.end(drill, shift, drilling.Verdict(DrillState.WORKED, "Fine."))
    assert facts(drill).state == DrillState.INTERRUPTED


def test_two_workers_take_one_drill_once(yard: Yard) -> None:
    drill = yard.ask()
    loops = [ShiftLoop(shifts.ring_row()) for _ in range(2)]
    threads = [threading.Thread(target=apart, args=(loop,)) for loop in loops]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert facts(drill).state == WORKED
    assert len(came(facts(drill))) == 6


def test_a_worker_with_another_version_refuses_and_calls_nobody(yard: Yard) -> None:
    drill = yard.ask()
    yard.write(('version = "1"', 'version = "2"'))
    work(lambda: facts(drill).is_over)
    assert (facts(drill).state, came(facts(drill))) == (DrillState.REFUSED, [])
    assert "version 2" in facts(drill).said


def test_a_worker_without_the_tool_refuses(yard: Yard) -> None:
    drill = yard.ask()
    yard.settings.SAGA_TOOLS = ""
    registry.cache_clear()
    work(lambda: facts(drill).is_over)
    assert facts(drill).state == DrillState.REFUSED


def test_a_drill_that_nobody_takes_expires(yard: Yard) -> None:
    drill = yard.ask()
    old = Drill.objects.create(
        tool="crm.blind",
        version="1",
        digest=registry().get("crm.blind").digest,
        undo="compensate",
        args_text='{"email":"a@example.com"}',
        sandbox=yard.sandbox,
        reason="long ago",
        asked_by="person:oskar",
        asked_at="2020-01-01T00:00:00Z",
    )
    assert facts(old.pk).state == DrillState.EXPIRED
    taken = drilling.begin(shifts.ring_row())
    assert taken
    assert taken.id == drill
    assert drilling.begin(shifts.ring_row()) is None


def test_steps_go_on_while_a_long_drill_runs(yard: Yard) -> None:
    gate = threading.Event()

    def slow(caller) -> None:
        gate.wait(20)
        caller.sendall(b"HTTP/1.1 400 Bad\r\nContent-Length: 0\r\n\r\n")

    target = SocketTarget(slow)
    yard.write((f'base_url = "{yard.sandbox}"', f'base_url = "{target.url}"'))
    drill = yard.ask("crm.blind")
    loop = ShiftLoop(shifts.ring_row())
    thread = threading.Thread(target=apart, args=(loop,))
    thread.start()
    deadline = time.monotonic() + 20
    while not target.requests and time.monotonic() < deadline:
        time.sleep(0.02)
    assert facts(drill).state == DrillState.RUNNING
    assert loop._drills.is_busy
    assert len(loop._running) == 0  # none of the threads for steps is taken
    gate.set()
    thread.join(30)
    target.close()
    assert facts(drill).state == FAILED


def test_a_relay_rings_for_a_drill_when_no_shift_lives_and_only_once(
    yard: Yard, redis_client
) -> None:
    assert not outbox.ring_if_needed()
    drill = yard.ask()
    assert outbox.ring_if_needed()
    assert redis_client.llen("rq:queue:shifts") == 1
    assert not outbox.ring_if_needed()  # one is on its way
    work(lambda: facts(drill).is_over)
    assert not outbox.ring_if_needed()
