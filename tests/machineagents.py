"""The state machine's agents: forgetful, wordy, and of two minds."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from uuid import UUID

from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule

from ledger import errors
from ledger.models import Saga, Step
from ledger.services import closing
from ledger.services.proposals import Answer, Proposal
from ledger.services.proposing import propose
from ledger.states import SAGA_ENDED, STEP_FINISHED, StepState
from tests.machineworkers import Workers
from tests.machineworld import MOST_SAGAS, MOST_STEPS, PICK, SEVERAL, Asked

RELEASED = (StepState.FAILED, StepState.REJECTED, StepState.CANCELLED, StepState.COMPENSATED)


class Agents(Workers):
    """What an agent may ask for, and ask for again."""

    @precondition(lambda self: len(self.owner) < MOST_SAGAS)
    @rule(who=PICK, tools=SEVERAL)
    def open(self, who: int, tools: list[str]) -> None:
        self._open(self.of(self.agents, who), tools)

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
