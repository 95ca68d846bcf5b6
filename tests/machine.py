"""A console that anything may happen to, in any order: the rules of the state machine.

The database, the services, the shift's own code and the target are the real ones. What a
crash leaves behind is what is left out: a claim that is rolled back with its connection, an
attempt that nobody ever answers for, an answer that comes when others have found out.
"""

from __future__ import annotations

import time
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, ClassVar
from uuid import UUID

from django.db import connection, transaction
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from approvals import rights
from approvals.models import Approval
from approvals.services import deciding, requesting
from approvals.states import ApprovalState
from ledger import errors, outbox
from ledger.bearer import Bearer
from ledger.gate import Held, Verdict
from ledger.models import Attempt, Entry, OutboxMessage, Saga, Step
from ledger.outcomes import Outcome
from ledger.queries.pages_attention import attention
from ledger.services import closing, freezing, operating, shifts
from ledger.services.claiming import Assignment, claim
from ledger.services.opening import open_saga
from ledger.services.proposals import Answer, Opening, Proposal
from ledger.services.proposing import propose
from ledger.services.recording import Finished, record
from ledger.shift import ShiftLoop
from ledger.states import SAGA_ENDED, STEP_FINISHED, Direction, StepState
from tests.approvalcast import agent, person
from tests.book import FAULTS, Book
from tests.invariants import faults_of, waits_for

TOOLS = ("plain", "dedupes", "once", "blind", "grave", "letter", "refused")
# Which of several: an index into whatever there is, so that a shrunk example stays readable.
PICK = st.integers(0, 5)
# What goes wrong with the next requests at the target: nothing, mostly.
WRONG = st.lists(st.sampled_from(FAULTS), max_size=2)
SEVERAL = st.lists(st.sampled_from(TOOLS), min_size=1, max_size=3)
MOST_SAGAS, MOST_STEPS = 4, 14
# Turns in which a console that is left alone comes to rest; each one lets every delay pass.
TURNS_TO_REST = 40


class Abandoned(Exception):
    """The connection is gone before its COMMIT."""


@dataclass(frozen=True)
class Asked:
    """A step that was accepted, as its agent remembers it."""

    saga: UUID
    proposal: Proposal
    step: UUID


@dataclass(frozen=True)
class Lost:
    """An attempt whose worker does not answer; `outcome` is what its call came to."""

    shift: UUID
    assignment: Assignment
    outcome: Outcome


class Console(RuleBasedStateMachine):
    """Everybody who has to do with a console, and everything that can happen to them."""

    book: ClassVar[Book]
    # What has happened in all examples, so that a test can say whether they were worth it.
    seen: ClassVar[Counter[str]] = Counter()

    @initialize(first=SEVERAL, second=SEVERAL)
    def start(self, first: list[str], second: list[str]) -> None:
        """An empty console: what an example did to another one must not be seen in this one."""
        with connection.cursor() as cursor:
            cursor.execute("TRUNCATE ledger_agent, ledger_freeze, auth_user CASCADE")
        self.book.clear()
        self.agents = [agent("ada"), agent("bob")]
        self.approvers = [person("ann", "approvers"), person("abe", "approvers")]
        self.owner: dict[UUID, Bearer] = {}
        self.asked: list[Asked] = []
        self.lost: list[Lost] = []
        self.words = 0
        self.checked: dict[UUID, tuple[int, int]] = {}
        self._look()
        self._open(self.agents[0], first)
        self._open(self.agents[1], second)

    def _look(self) -> None:
        """What the rules need to know before they are tried."""
        states = set(Step.objects.values_list("state", flat=True))
        self.in_doubt = bool(states & {"unknown", "stuck", "compensating"})
        self.requested = Approval.objects.exists()
        self.waiting = Approval.objects.filter(state=ApprovalState.PENDING).exists()
        self.frozen = freezing.active_freezes().exists()
        owed = OutboxMessage.objects.filter(taken_at__isnull=True)
        self.due = owed.exists()
        self.out = Attempt.objects.filter(state="started").exists() or (
            OutboxMessage.objects.filter(lease_until__isnull=False).exists()
        )

    # -- its agents ---------------------------------------------------------------------

    @property
    def sagas(self) -> list[UUID]:
        return list(self.owner)

    def go_on(self) -> None:
        """What happens when there is nothing to do it to. Which rules there are must not depend
        on the database: an example is repeated by its choices alone."""
        self.work(2, True, [])

    def of(self, found: list[Any], pick: int) -> Any:
        return found[pick % len(found)]

    def word(self) -> str:
        self.words += 1
        return f"w{self.words}"

    @precondition(lambda self: len(self.owner) < MOST_SAGAS)
    @rule(who=PICK, tools=SEVERAL)
    def open(self, who: int, tools: list[str]) -> None:
        self._open(self.of(self.agents, who), tools)

    def _open(self, bearer: Bearer, tools: list[str]) -> None:
        steps = tuple(Proposal(self.word(), f"book.{t}", {"what": self.word()}) for t in tools)
        opening = Opening(task_id=self.word(), name="Machine", steps=steps, retry_budget=6)
        opened = open_saga(opening, bearer=bearer)
        assert opened.created
        self.owner[opened.saga] = bearer
        for proposal, answer in zip(steps, opened.answers, strict=True):
            self.asked.append(Asked(opened.saga, proposal, answer.step))
        again = open_saga(opening, bearer=bearer)
        assert (again.saga, again.created) == (opened.saga, False)

    @rule(saga=PICK, tools=SEVERAL)
    def propose(self, saga: int, tools: list[str]) -> None:
        if len(self.asked) >= MOST_STEPS:
            self.go_on()
            return
        where = self.of(self.sagas, saga)
        for tool in tools:
            self._submit(where, Proposal(self.word(), f"book.{tool}", {"what": self.word()}))

    def _once(self) -> list[Asked]:
        """Steps with an effect of their own, and not a repeat of one."""
        return [
            asked
            for asked in self.asked
            if asked.proposal.tool == "book.once" and asked.proposal.repeat_of is None
        ]

    def _submit(self, saga: UUID, proposal: Proposal) -> Answer | None:
        """Propose something new; None when the saga takes no more steps."""
        row = Saga.objects.get(pk=saga)
        is_open = not (row.closed_at or row.ended_backward_why or row.state in SAGA_ENDED)
        try:
            answer = propose(saga, proposal, bearer=self.owner[saga])
        except errors.SagaEnded:
            assert not is_open, row.state
            return None
        if answer.kind == "accepted":
            assert is_open
            self.asked.append(Asked(saga, proposal, answer.step))
        return answer

    @rule(which=PICK)
    def ask_again(self, which: int) -> None:
        """A forgetful agent: the same step is answered by what the ledger knows."""
        asked = self.of(self.asked, which)
        before = Step.objects.get(pk=asked.step)
        answer = propose(asked.saga, asked.proposal, bearer=self.owner[asked.saga])
        kind = "replayed" if before.state in STEP_FINISHED else "in_flight"
        assert (answer.kind, answer.step, answer.effect_of) == (kind, asked.step, None)
        assert Step.objects.get(pk=asked.step) == before

    @rule(which=PICK)
    def reword(self, which: int) -> None:
        """A model rewords its args: refused, unless a person asked for just that."""
        asked = self.of(self.asked, which)
        before = Step.objects.get(pk=asked.step)
        args = {**asked.proposal.args, "note": self.word()}
        proposal = replace(asked.proposal, args=args)
        try:
            answer = propose(asked.saga, proposal, bearer=self.owner[asked.saga])
        except errors.StepMismatch:
            assert before.state != StepState.CHANGE_REQUESTED
            assert Step.objects.get(pk=asked.step).fingerprint == before.fingerprint
            return
        assert (answer.kind, answer.step) == ("accepted", asked.step)
        assert before.state == StepState.CHANGE_REQUESTED
        self.asked[self.asked.index(asked)] = replace(asked, proposal=proposal)

    @rule(which=PICK, saga=PICK, reworded=st.booleans())
    def ask_for_the_same_effect(self, which: int, saga: int, reworded: bool) -> None:
        """Another step, perhaps of another saga and agent, wants what is claimed already."""
        if not self._once():
            self.go_on()
            return
        once = self._once()
        args = dict(self.of(once, which).proposal.args)
        if reworded:
            args["note"] = self.word()
        claimed = [
            one.step
            for one in once
            if one.proposal.args["what"] == args["what"]
            and Step.objects.get(pk=one.step).state not in RELEASED
        ]
        assert len(claimed) <= 1, "one effect is claimed twice"
        proposal = Proposal(self.word(), "book.once", args)
        where = self.of(self.sagas, saga)
        try:
            answer = self._submit(where, proposal)
        except errors.EffectClaimed as refusal:
            holder = UUID(refusal.extra["effect_of"])
            claimed.remove(holder)  # ValueError when it is not the one that claimed it
            return
        except errors.PreviouslyRejected:
            return
        if claimed:
            assert answer is not None
            assert (answer.step, answer.effect_of) == (claimed[0], claimed[0])

    @rule(which=PICK, saga=PICK)
    def repeat_on_purpose(self, which: int, saga: int) -> None:
        """A deliberate second effect always waits for a person."""
        if not self._once():
            self.go_on()
            return
        first = self.of(self._once(), which)
        proposal = Proposal(
            self.word(),
            "book.once",
            {"what": first.proposal.args["what"]},
            reason="the customer wants it twice",
            repeat_of=first.step,
        )
        with suppress(errors.PreviouslyRejected, errors.NotFound, errors.InvalidArgs):
            answer = self._submit(self.of(self.sagas, saga), proposal)
            if answer and answer.kind == "accepted":
                assert Step.objects.get(pk=answer.step).state == StepState.AWAITING_APPROVAL

    @rule(saga=PICK, word=st.sampled_from(["complete", "abort", *["go on"] * 3]))
    def complete_or_abort(self, saga: int, word: str) -> None:
        """An agent's last word, which it says seldom: hardly any saga would go on otherwise."""
        where = self.of(self.sagas, saga)
        bearer = self.owner[where]
        with suppress(errors.SagaEnded):
            if word == "complete":
                closing.complete(where, bearer=bearer)
            elif word == "abort":
                closing.abort(where, "changed its mind", bearer=bearer)

    # -- its people ---------------------------------------------------------------------

    def requests(self) -> list[Approval]:
        return list(Approval.objects.order_by("id"))

    @rule(
        which=PICK,
        who=PICK,
        answer=st.sampled_from(["approve", "approve", "approve", "reject", "request_change"]),
    )
    def decide(self, which: int, who: int, answer: str) -> None:
        """What waits is decided; a late or second click is told so and changes nothing."""
        if not self.waiting:
            self.go_on()
            return
        waiting = [r for r in self.requests() if r.state == ApprovalState.PENDING]
        found = waiting or self.requests()
        if not found:
            return
        self._click(self.of(found, which), self.of(self.approvers, who), answer)

    @rule(which=PICK, who=PICK, answer=st.sampled_from(["approve", "reject", "request_change"]))
    def click_late(self, which: int, who: int, answer: str) -> None:
        """On whatever request there ever was: also the second click, and the later no."""
        if not self.requested:
            self.go_on()
            return
        found = self.requests()
        if found:
            self._click(self.of(found, which), self.of(self.approvers, who), answer)

    def _click(self, request: Approval, who: Bearer, answer: str) -> None:
        words = {"args_digest": request.args_digest, "reason": "seen"}
        try:
            getattr(deciding, answer)(who, request.pk, **words)
        except (errors.AlreadyDecided, errors.StaleDigest, errors.ApprovalExpired):
            assert request.state != ApprovalState.PENDING or _is_over(request)
        except errors.InvalidArgs:
            assert answer == "request_change"
            assert request.direction != Direction.FORWARD

    @rule(which=PICK)
    def nobody_answers(self, which: int) -> None:
        """The time of a request runs out: asked again for a moment only, and waited for."""
        if not self.waiting:
            self.go_on()
            return
        waiting = [r for r in self.requests() if r.state == ApprovalState.PENDING]
        if not waiting:
            return
        now = self.of(waiting, which)
        held = Held(
            step=now.step_id,
            saga=now.saga_id,
            direction=now.direction,
            args=Step.objects.get(pk=now.step_id).args,
            args_digest=now.args_digest,
            tool=now.tool,
            tool_version=now.tool_version,
            tool_digest=now.tool_digest,
            idempotency_key=now.idempotency_key,
            why="asked again, briefly",
        )
        terms = {"need": [{"group": "approvers", "count": 1}], "expires_s": 0.005}
        requesting.ask(held, Verdict("ask", now.rule, now.policy_digest, terms))
        time.sleep(0.006)

    def doubtful(self) -> list[Step]:
        states = (StepState.UNKNOWN, StepState.STUCK, StepState.COMPENSATING)
        return list(Step.objects.filter(state__in=states).order_by("id"))

    @rule(which=PICK, ends=st.sampled_from([False, False, True]))
    def resolve(self, which: int, ends: bool) -> None:
        """An operator who has looked at the target says what is so, or ends the saga."""
        if not self.in_doubt:
            self.go_on()
            return
        found = self.doubtful()
        if not found:
            return
        step = self.of(found, which)
        answer, result = ("end_saga", None) if ends else self._truth(step)
        with suppress(errors.AlreadyDecided):
            operating.resolve(
                step.pk, answer, result=result, reason="looked there", actor="person:ona"
            )

    def _truth(self, step: Step) -> tuple[Any, Any]:
        key, noun = step.idempotency_key, "effects"
        if step.executed_seq is not None:
            prefix = "corr:" if step.tool == "book.letter" else "comp:"
            key, noun = prefix + key, "undos"
        there = self.book.find(key, noun)
        return ("happened", there[0]) if there else ("did_not_happen", None)

    @rule(which=PICK)
    def retry(self, which: int) -> None:
        if not self.in_doubt:
            self.go_on()
            return
        found = self.doubtful()
        if found:
            with suppress(errors.AlreadyDecided):
                operating.retry(self.of(found, which).pk, reason="mended", actor="person:ona")

    @rule(scope=st.sampled_from(["all", "tool", "agent", "saga"]), which=PICK)
    def freeze(self, scope: str, which: int) -> None:
        values = {
            "all": [""],
            "tool": [f"book.{tool}" for tool in TOOLS],
            "agent": ["ada", "bob"],
            "saga": [str(saga) for saga in self.sagas],
        }
        value = self.of(values[scope], which)
        freezing.freeze(scope, value, reason="wait", actor="person:ona")

    @rule(which=PICK)
    def lift(self, which: int) -> None:
        if not self.frozen:
            self.go_on()
            return
        found = list(freezing.active_freezes())
        if found:
            assert freezing.lift(self.of(found, which).pk, actor="person:ona")

    # -- its workers, and what becomes of them --------------------------------------------

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

    # -- what must hold -------------------------------------------------------------------

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


RELEASED = (StepState.FAILED, StepState.REJECTED, StepState.CANCELLED, StepState.COMPENSATED)


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


def _is_over(request: Approval) -> bool:
    from django.utils import timezone

    return request.expires_at <= timezone.now()
