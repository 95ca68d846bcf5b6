"""A step starts when every step before it has ended, and not when only its neighbour has: that one
may have ended out of its turn, by a no (decision 2)."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from ledger.models import Step
from ledger.outcomes import Done, Failed
from ledger.services.operating import resolve
from tests.doubtcast import CUT, ONA
from tests.shop import assert_verifies, kinds, states
from tests.stage import Stage, a_stage

__all__ = ["a_stage"]


class Course:
    """A saga past its pivot: a charge that is out, and a refund after it that waits for people."""

    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        self.saga, pivot = stage.waiting_refund()
        stage.decide(pivot)
        stage.work()
        self.first = self.charge("first")
        self.out = stage.claim()
        self.held = stage.refund(self.saga, "held", payment_intent="pi_held")

    def charge(self, step_id: str) -> UUID:
        args = {"customer": step_id, "amount": 1}
        return self.stage.propose(self.saga, step_id, "payments.charge", args)

    def state(self, step_id: str) -> str:
        return states(self.saga)[step_id]


@pytest.fixture
def course(stage: Stage) -> Course:
    return Course(stage)


def reject(course: Course) -> None:
    course.stage.decide(course.held, "reject", reason="Not twice.")


@pytest.mark.parametrize("answer", [None, CUT], ids=["is out", "is unknown"])
def test_what_waited_behind_a_step_that_was_rejected_waits_on(course: Course, answer: Any) -> None:
    course.charge("third")
    if answer:
        course.stage.answer(course.out, answer)
    reject(course)
    assert course.state("third") == "waiting"
    assert course.stage.claim() == []
    assert_verifies()


def test_what_is_proposed_behind_a_rejected_step_waits_for_the_one_before_it(
    course: Course,
) -> None:
    reject(course)
    course.charge("third")
    assert course.state("third") == "waiting"
    assert_verifies()


def test_what_is_approved_behind_a_rejected_step_waits_for_the_one_before_it(
    course: Course,
) -> None:
    later = course.stage.refund(course.saga, "third", payment_intent="pi_third")
    reject(course)
    course.stage.decide(later)
    assert course.state("third") == "waiting"
    assert_verifies()


def test_when_the_one_before_it_has_ended_the_next_that_waits_starts(course: Course) -> None:
    course.charge("third")
    reject(course)
    assert course.state("third") == "waiting"
    course.stage.answer(course.out, Done({"id": "ch_1"}))
    assert course.state("third") == "queued"
    course.stage.work()
    started = [step for _, step in kinds(course.saga, "attempt.started")]
    assert started == ["charge", "refund", "first", "third"]
    assert_verifies()


def test_behind_a_stuck_step_the_next_waits_until_it_is_left_out(course: Course) -> None:
    course.charge("third")
    course.stage.answer(course.out, Failed("404: no such customer"))
    assert course.state("first") == "stuck"
    reject(course)
    assert course.state("third") == "waiting"
    resolve(course.first, "did_not_happen", reason="not needed", actor=ONA)
    assert course.state("third") == "queued"
    assert Step.objects.get(pk=course.first).state == "failed"
    assert_verifies()
