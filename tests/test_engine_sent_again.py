"""Sent again under the same key, to find out: until that is answered the step is in doubt."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from django.db import connection

from ledger.errors import SagaEnded
from ledger.models import Attempt, OutboxMessage, Saga, Step
from ledger.outcomes import Done, Failed, NotApplied, Unknown
from ledger.services import closing, freezing, sweeping
from ledger.tools.installed import registry
from tests.registered import registered
from tests.stage import Stage

TOOLS = """
[tools."orders.book"]
version = "1"
tier = "compensatable"
blast_radius = "low"
downstream_idempotent = true
retries = 3
[tools."orders.book".args]
type = "object"
[tools."orders.book".execute]
method = "POST"
url = "https://orders.example/book"
[tools."orders.book".compensate]
method = "POST"
url = "https://orders.example/cancel"

[tools."orders.look"]
version = "1"
tier = "compensatable"
blast_radius = "low"
settle_s = 0
[tools."orders.look".args]
type = "object"
[tools."orders.look".execute]
method = "POST"
url = "https://orders.example/book"
[tools."orders.look".compensate]
method = "POST"
url = "https://orders.example/cancel"
[tools."orders.look".compensate.probe]
method = "GET"
url = "https://orders.example/cancelled"

[tools."orders.pay"]
version = "1"
tier = "pivot"
blast_radius = "low"
downstream_idempotent = true
[tools."orders.pay".args]
type = "object"
[tools."orders.pay".execute]
method = "POST"
url = "https://orders.example/pay"
"""
CUT = Unknown("the connection was cut before an answer came")


@pytest.fixture(name="stage")
def a_stage(db: None, settings: Any, tmp_path: Path) -> Iterator[Stage]:
    with registered(settings, tmp_path, TOOLS):
        yield Stage()


def in_doubt(stage: Stage, tool: str = "orders.book") -> tuple[UUID, UUID]:
    """A step whose first attempt was cut off, and which waits to be sent again."""
    saga = stage.saga()
    step = stage.propose(saga, "book", tool, {})
    stage.answer(stage.claim(), CUT)
    assert Step.objects.get(pk=step).state == "queued"
    return saga, step


def now_due() -> None:
    with connection.cursor() as cursor:
        cursor.execute("UPDATE ledger_outboxmessage SET due_at = clock_timestamp()")


def run_out(step: UUID) -> None:
    """The lease of the attempt that is out runs out, and the sweep sees it."""
    with connection.cursor() as cursor:
        cursor.execute(
            "UPDATE ledger_attempt SET lease_until = clock_timestamp() - interval '1 second', "
            "started_at = clock_timestamp() - interval '1 minute' "
            "WHERE step_id = %s AND state = 'started'",
            [step],
        )
    (attempt,) = sweeping.expired_attempts()
    assert sweeping.expire_attempt(attempt)


def answer(stage: Stage, outcome: Any) -> None:
    """What is due later is due now, and is answered so."""
    now_due()
    assignments = stage.claim()
    assert len(assignments) == 1
    stage.answer(assignments, outcome)


def test_an_abort_resolves_it_first_and_then_undoes_it(stage: Stage) -> None:
    saga, step = in_doubt(stage)
    closing.abort(saga, "stop", bearer=stage.agent)
    assert Step.objects.get(pk=step).state == "queued"
    answer(stage, Done({"id": "b1"}))
    assert Step.objects.get(pk=step).state == "compensating"
    answer(stage, Done({"id": "c1"}))
    assert Step.objects.get(pk=step).state == "compensated"
    assert Saga.objects.get(pk=saga).state == "compensated"


def test_a_pivot_that_is_sent_again_cannot_be_aborted(stage: Stage) -> None:
    saga, _ = in_doubt(stage, "orders.pay")
    with pytest.raises(SagaEnded, match="may have"):
        closing.abort(saga, "stop", bearer=stage.agent)


def test_a_refusal_says_nothing_of_the_attempt_before(stage: Stage) -> None:
    saga, step = in_doubt(stage)
    answer(stage, Failed("401: the key was changed"))
    assert Step.objects.get(pk=step).state == "queued"
    answer(stage, Done({"id": "b1"}))
    assert Step.objects.get(pk=step).state == "committed"
    assert Attempt.objects.filter(step=step, state="failed").count() == 0
    assert Saga.objects.get(pk=saga).state == "running"


def test_refused_to_the_end_it_waits_for_a_person(stage: Stage) -> None:
    saga, step = in_doubt(stage)
    for _ in range(3):
        answer(stage, Failed("401: the key was changed"))
    assert (Step.objects.get(pk=step).state, Saga.objects.get(pk=saga).state) == (
        "unknown",
        "stuck",
    )


def test_an_undo_that_is_refused_when_sent_again_is_still_in_doubt(stage: Stage) -> None:
    saga = stage.saga()
    step = stage.propose(saga, "book", "orders.book", {})
    stage.answer(stage.claim(), Done({"id": "b1"}))
    closing.abort(saga, "stop", bearer=stage.agent)
    stage.answer(stage.claim(), CUT)
    answer(stage, Failed("404: no such order"))
    assert Step.objects.get(pk=step).state == "compensating"
    answer(stage, Done({"id": "c1"}))
    assert Step.objects.get(pk=step).state == "compensated"


def test_late_evidence_starts_no_undo_beside_the_one_that_is_out(stage: Stage) -> None:
    """Two workers, one undo: the first is too late, the second's call is out meanwhile."""
    saga = stage.saga()
    step = stage.propose(saga, "book", "orders.look", {})
    stage.answer(stage.claim(), Done({"id": "b1"}))
    closing.abort(saga, "stop", bearer=stage.agent)
    first = stage.claim()
    run_out(step)
    for _ in range(2):
        answer(stage, NotApplied())
    now_due()
    second = stage.claim()
    assert [found.attempt is not None for found in second] == [True]
    stage.answer(first, Failed("the worker was too late to start it", retryable=True))
    for _ in range(2):
        now_due()
        assert stage.claim() == []
        assert not OutboxMessage.objects.filter(step=step, kind="run", taken_at=None).exists()
    stage.answer(second, Done({"id": "c1"}))
    now_due()
    assert stage.claim() == []
    assert Step.objects.get(pk=step).state == "compensated"
    assert Attempt.objects.filter(step=step, direction="compensate").count() == 2


@pytest.mark.parametrize("direction", ["forward", "compensate"])
def test_one_that_waited_beyond_the_targets_memory_is_not_sent(
    stage: Stage, direction: str
) -> None:
    """Rule 5.8: the time in which the target knows our key is looked at when it leaves."""
    saga, step = in_doubt(stage)
    if direction == "compensate":
        answer(stage, Done({}))
        closing.abort(saga, "no", bearer=stage.agent)
        answer(stage, Unknown("the line went dead"))
    frozen = freezing.freeze("all", "", reason="an incident", actor="person:ona")
    remembers_s = registry().get("orders.book").idempotent_for_s
    for tried in Attempt.objects.filter(step=step):
        before = tried.started_at - timedelta(seconds=remembers_s + 1)
        Attempt.objects.filter(pk=tried.pk).update(started_at=before)
    freezing.lift(frozen.pk, actor="person:ona")
    now_due()
    assert stage.claim() == []
    assert Saga.objects.get(pk=saga).state == "stuck"
