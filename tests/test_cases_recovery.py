"""Cases of recovery and of the way back, each with what must happen here."""

from __future__ import annotations

import json
import os
import time
from typing import Any

import pytest
from django.db import connection

from ledger import errors
from ledger.models import Attempt, Entry, Saga, Step
from ledger.outcomes import Failed, Unknown
from ledger.queries import documents
from ledger.services.claiming import claim
from ledger.services.closing import abort, complete
from ledger.services.operating import retry
from ledger.services.proposals import Proposal
from ledger.services.proposing import propose
from ledger.services.sweeping import expire_attempt, expired_attempts
from tests.deploys import Till, a_till, booking, state_of, step_of
from tests.doubtcast import due_now, expire
from tests.shop import assert_verifies

__all__ = ["a_till"]


def told(step: Step, kind: str) -> list[dict[str, Any]]:
    found = Entry.objects.filter(saga_id=step.saga_id, step_id=step.step_id, kind=kind)
    return [json.loads(entry.payload) for entry in found.order_by("seq")]


def test_an_undo_is_given_the_recorded_result_after_a_restart(till: Till) -> None:
    """Case C62: the forward result is read back from the ledger, by a process that never saw it."""
    saga = till.open(booking("one"))
    till.work()
    number = json.loads(step_of(saga).result_text or "{}")["no"]
    till.release()
    abort(saga, "no", bearer=till.agent)
    till.work()
    assert till.lines() == [till.lines()[0], f"compensate {number}"]
    assert state_of(saga) == "compensated"


def test_a_key_is_never_minted_anew(till: Till) -> None:
    """Case C63: one key a direction, written down before each call, the same on every try."""
    till.release(retries=5)
    saga = till.open(booking("one"))
    for _ in range(3):
        due_now()
        till.answer(till.claim(), Failed("busy", retryable=True))
    due_now()
    till.work()
    till.jam()
    abort(saga, "no", bearer=till.agent)
    till.work()
    till.unjam()
    step = step_of(saga)
    retry(step.pk, reason="oiled", actor="person:ona")
    till.work()
    tries = Attempt.objects.filter(step=step).order_by("fence")
    keys = [(one.direction, one.idempotency_key) for one in tries]
    assert set(keys) == {
        ("forward", step.idempotency_key),
        ("compensate", f"comp:{step.idempotency_key}"),
    }
    assert len(keys) == 6
    assert [one["idempotency_key"] for one in told(step, "attempt.started")] == [k for _, k in keys]
    assert_verifies()


@pytest.mark.parametrize("zone", ["Pacific/Kiritimati", "Pacific/Pago_Pago", "Asia/Kathmandu"])
def test_clocks_and_zones_of_workers_do_not_matter(
    till: Till, zone: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Case C59: leases and delays are judged by the database's clock, whatever the zone."""
    monkeypatch.setenv("TZ", zone)
    time.tzset()
    try:
        with connection.cursor() as cursor:
            cursor.execute("SELECT set_config('TimeZone', 'America/St_Johns', false)")
        till.release(retries=5)
        saga = till.open(booking("one"))
        (taken,) = till.claim()
        assert expired_attempts() == []
        assert taken.attempt is not None
        assert not expire_attempt(taken.attempt)
        till.answer([taken], Failed("busy", retryable=True, retry_after_s=30))
        for _ in range(5):
            assert till.claim() == []
        assert Attempt.objects.filter(step__saga=saga).count() == 1
    finally:
        monkeypatch.undo()
        os.environ.pop("TZ", None)
        time.tzset()
        with connection.cursor() as cursor:
            cursor.execute("SELECT set_config('TimeZone', 'UTC', false)")


def test_nothing_stops_a_compensation_once_it_is_under_way(till: Till) -> None:
    """Case C70: neither another abort nor "complete" ends it, and what has an intent is in it."""
    saga = till.open(booking("one"), booking("two", sum=2))
    (one,) = till.claim()
    till.answer([one], one.tool.run(one.call))
    (two,) = till.claim()
    two.tool.run(two.call)
    till.answer([two], Unknown("the line went dead"))
    abort(saga, "no", bearer=till.agent)
    abort(saga, "stop that", bearer=till.agent)
    with pytest.raises(errors.SagaEnded):
        complete(saga, bearer=till.agent)
    with pytest.raises(errors.SagaEnded):
        propose(saga, booking("three", sum=3), bearer=till.agent)
    due_now()
    till.work()
    assert [step_of(saga, name).state for name in ("one", "two")] == ["compensated"] * 2
    assert [line.split()[0] for line in till.lines()] == ["booked", "booked"] + ["compensate"] * 2
    assert_verifies()


def test_what_is_unknown_is_never_called_failed(till: Till) -> None:
    """Cases C76, C69: a doubt has a state of its own in every answer, and is not retryable."""
    saga = till.open(booking("one"))
    till.answer(till.claim(), Unknown("502 with a page of HTML"))
    document = documents.step(step_of(saga).pk, absolute=str)
    assert document is not None
    assert (document["state"], document["error"]["code"]) == ("unknown", "unknown")
    assert document["finished_at"] is None
    assert not documents.has_settled(document)
    assert "failed" not in [entry.state for entry in Entry.objects.filter(saga_id=saga)]
    assert (state_of(saga), Saga.objects.get(pk=saga).retries_used) == ("running", 0)


def test_a_crash_after_the_effect_is_looked_for_and_not_run_again(till: Till) -> None:
    """Cases H16, C17, C65: the intent is its own commit; what it left is in doubt, not retried."""
    saga = till.open(booking("one"))
    (taken,) = till.claim()
    taken.tool.run(taken.call)
    expire(taken)
    assert step_of(saga).state == "unknown"
    due_now()
    looks = claim(till.shift, 20)
    assert [one.attempt for one in looks] == [None]
    till.answer(looks, looks[0].tool.probe(looks[0].call))
    step = step_of(saga)
    assert (step.state, step.attempts, till.effects()) == ("committed", 1, 1)
    assert_verifies()


@pytest.mark.parametrize("failures", [0, 1, 3])
def test_a_step_is_undone_however_many_tries_it_took(till: Till, failures: int) -> None:
    """Case I5: what is undone are recorded effects, whatever the count of attempts."""
    till.release(retries=5)
    saga = till.open(booking("one"))
    for _ in range(failures):
        due_now()
        till.answer(till.claim(), Failed("busy", retryable=True))
    due_now()
    till.work()
    abort(saga, "no", bearer=till.agent)
    till.work()
    assert step_of(saga).state == "compensated"
    assert [line.split()[0] for line in till.lines()] == ["booked", "compensate"]


def test_a_step_without_an_executor_is_refused_when_it_is_proposed(till: Till) -> None:
    """Case E10: not after somebody has approved it."""
    saga = till.open()
    with pytest.raises(errors.UnknownTool):
        propose(saga, Proposal("one", "till.burn", {}), bearer=till.agent)
    assert not Step.objects.filter(saga_id=saga).exists()
    assert propose(saga, booking("one"), bearer=till.agent).kind == "accepted"
