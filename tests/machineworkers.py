"""The state machine's workers, and what becomes of them."""

from __future__ import annotations

from contextlib import suppress
from typing import Any
from uuid import UUID

from django.db import transaction
from hypothesis import strategies as st
from hypothesis.stateful import rule

from ledger import outbox
from ledger.models import Attempt, Entry, OutboxMessage
from ledger.services import freezing, shifts
from ledger.services.claiming import Assignment, claim
from ledger.services.recording import Finished, record
from ledger.shift import ShiftLoop
from tests.book import FAULTS
from tests.machineworld import MOST_SAGAS, MOST_STEPS, PICK, TOOLS, Lost, World

# What goes wrong with the next requests at the target: nothing, mostly.
WRONG = st.lists(st.sampled_from(FAULTS), max_size=2)


class Abandoned(Exception):
    """The connection is gone before its COMMIT."""


class Workers(World):
    """Shifts that work, die, wake and answer late; and time, which passes."""

    def go_on(self) -> None:
        """What happens instead when there is nothing to do it to: there is more to do.

        Which rules there are must not depend on the database: an example is repeated by its
        choices alone.
        """
        if len(self.owner) < MOST_SAGAS and len(self.asked) < MOST_STEPS:
            tools = [TOOLS[(self.words + n) % len(TOOLS)] for n in (0, 2, 3)]
            self._open(self.of(self.agents, self.words), tools)
        else:
            self.work(2, True, [])

    @rule(room=st.integers(1, 3), together=st.booleans(), faults=WRONG)
    def work(self, room: int, together: bool, faults: list[str]) -> None:
        """What a shift does, one call after another."""
        self.book.coming = list(faults)
        shift = shifts.ring_row()
        finished = [Finished(one, _call(one)) for one in self._claim(shift, room)]
        for batch in [finished] if together else [[one] for one in finished]:
            if batch:
                record(shift, batch)

    @rule(faults=WRONG)
    def run_a_shift(self, faults: list[str]) -> None:
        """With what is due already, and what falls due as it runs."""
        self.book.coming = list(faults)
        self.time_passes()
        ShiftLoop(shifts.ring_row()).run()

    def _claim(self, shift: UUID, room: int) -> list[Assignment]:
        taken = claim(shift, room)
        if taken and not all(one.attempt is None for one in taken):
            frozen = list(freezing.active_freezes())
            assert not any(freeze.scope == "all" for freeze in frozen)
        return taken

    @rule(room=st.integers(1, 3))
    def die_before_the_commit(self, room: int) -> None:
        """Killed in the middle of a claim: its connection goes, and with it what it wrote."""
        if not self.due:
            self.go_on()
            return
        before = Attempt.objects.count()
        with suppress(Abandoned), transaction.atomic():
            claim(shifts.ring_row(), room)
            raise Abandoned
        assert Attempt.objects.count() == before

    @rule(room=st.integers(1, 2))
    def die_before_the_call(self, room: int) -> None:
        """Killed with an intent and nothing sent."""
        if not self.due:
            self.go_on()
            return
        self._claim(shifts.ring_row(), room)

    @rule(room=st.integers(1, 2), faults=WRONG)
    def die_after_the_call(self, room: int, faults: list[str]) -> None:
        """Killed with an effect that nobody has heard of; or only stopped, to say so later."""
        if not self.due:
            self.go_on()
            return
        self.book.coming = list(faults)
        shift = shifts.ring_row()
        for one in self._claim(shift, room):
            outcome = _call(one)
            if one.attempt is not None:
                self.lost.append(Lost(shift, one, outcome))

    @rule(which=PICK)
    def answer_late(self, which: int) -> None:
        """Not killed after all, only stopped: it writes down what it knows, perhaps twice."""
        if not self.lost:
            self.go_on()
            return
        lost = self.of(self.lost, which)
        finished = [Finished(lost.assignment, lost.outcome)]
        record(lost.shift, finished)
        after = Entry.objects.count()
        record(lost.shift, finished)
        assert Entry.objects.count() == after, "the same answer was told twice"

    @rule()
    def leases_run_out(self) -> None:
        """Every lease of a worker that is gone, and of a look that is out."""
        if not self.out:
            self.go_on()
            return
        run_out()
        outbox.sweep()

    @rule()
    def sweep(self) -> None:
        outbox.sweep()

    @rule()
    def time_passes(self) -> None:
        """Backoffs and pauses between looks are over."""
        OutboxMessage.objects.filter(taken_at__isnull=True).update(due_at=_epoch())


def _call(one: Assignment) -> Any:
    """The one thing that is done out there; in a thread of a shift, as here."""
    return one.tool.probe(one.call) if one.attempt is None else one.tool.run(one.call)


def _epoch() -> Any:
    from datetime import UTC, datetime

    return datetime(2000, 1, 1, tzinfo=UTC)


def run_out() -> None:
    """Leases end: the time that passes is the only thing that is pretended here."""
    Attempt.objects.filter(state="started").update(lease_until=_epoch())
    OutboxMessage.objects.filter(lease_until__isnull=False).update(lease_until=_epoch())
