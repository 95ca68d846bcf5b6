"""The state machine's people: who decides, and who is on call."""

from __future__ import annotations

import time
from contextlib import suppress
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import rule

from approvals.models import Approval
from approvals.services import deciding, requesting
from approvals.states import ApprovalState
from ledger import errors
from ledger.bearer import Bearer
from ledger.gate import Held, Verdict
from ledger.models import Step
from ledger.services import freezing, operating
from ledger.states import Direction, StepState
from tests.machineworkers import Workers
from tests.machineworld import PICK, TOOLS


class People(Workers):
    """What a person may answer, at any time and twice."""

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


def _is_over(request: Approval) -> bool:
    from django.utils import timezone

    return request.expires_at <= timezone.now()
