"""A console that anything may happen to, in any order: the rules of the state machine.

The database, the services, the shift's own code and the target are the real ones. What a
crash leaves behind is what is left out: a claim that is rolled back with its connection, an
attempt that nobody ever answers for, an answer that comes when others have found out.
"""

from __future__ import annotations

from hypothesis.stateful import invariant

from approvals import rights
from ledger import outbox
from ledger.models import Entry, OutboxMessage, Saga, Step
from ledger.queries.pages_attention import attention
from ledger.services import freezing
from ledger.states import SAGA_ENDED
from tests.invariants import faults_of, waits_for
from tests.machineagents import Agents
from tests.machinepeople import People
from tests.machineworkers import run_out

__all__ = ["Console", "run_out"]
# Turns in which a console that is left alone comes to rest; each one lets every delay pass.
TURNS_TO_REST = 40


class Console(Agents, People):
    """Everybody who has to do with a console, and everything that can happen to them."""

    @invariant()
    def nothing_is_lost_doubled_or_unseen(self) -> None:
        """Of every saga that has moved: one where nothing was told and nothing happened out
        there is as it was."""
        moved = [
            (saga, (head, len(self.book.lines)))
            for saga, head in Saga.objects.values_list("pk", "head_seq")
            if self.checked.get(saga) != (head, len(self.book.lines))
        ]
        approver, seen = rights.who(self.approvers[0]), attention()
        for saga, as_it_is in moved:
            wrong = faults_of(saga, self.book, approver, seen)
            assert not wrong, (saga, wrong)
            self.checked[saga] = as_it_is
        self._one_effect_for_each_claim()
        self._look()

    def _one_effect_for_each_claim(self) -> None:
        """One business effect in the world at a time, unless a person agreed to another."""
        for what in {a.proposal.args["what"] for a in self.asked if a.proposal.tool == "book.once"}:
            effects = [x for x in self.book.lines if x["noun"] == "effects" and x["what"] == what]
            undone = {x["of"] for x in self.book.lines if x["noun"] == "undos"}
            live = [x for x in effects if x["id"] not in undone]
            wanted = Step.objects.filter(args__what=what, repeat_of__isnull=False).count()
            assert len(live) <= 1 + wanted, f"{len(live)} live effects of {what}"

    def teardown(self) -> None:
        """Left alone, with nothing frozen and nobody dying, it comes to rest where it is seen."""
        if not hasattr(self, "owner"):
            return
        for freeze in freezing.active_freezes():
            freezing.lift(freeze.pk, actor="person:ona")
        self.book.coming.clear()
        for _ in range(TURNS_TO_REST):
            run_out()
            outbox.sweep()
            self.time_passes()
            self.work(8, True, [])
            if not OutboxMessage.objects.filter(taken_at__isnull=True).exists():
                break
        self.checked.clear()
        self.nothing_is_lost_doubled_or_unseen()
        self.seen.update(Entry.objects.values_list("kind", flat=True))
        self.seen.update(f"saga {s}" for s in Saga.objects.values_list("state", flat=True))
        approver = rights.who(self.approvers[0])
        for saga in Saga.objects.exclude(state__in=SAGA_ENDED):
            steps = list(saga.steps.all())
            who = waits_for(saga, steps, approver, attention())
            assert who in ("attention", "inbox", "its agent"), (saga.state, who)
