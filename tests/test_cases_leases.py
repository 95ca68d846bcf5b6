"""Cases of leases: who may hold one, for how long, and what its end means."""

from __future__ import annotations

import threading
import time
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from django.db import IntegrityError, connection, transaction

from ledger import outbox
from ledger.models import Attempt, Entry
from ledger.outcomes import Failed
from ledger.services import shifts
from ledger.services.claiming import claim
from ledger.services.sweeping import expire_attempt, expired_attempts
from ledger.shift import ShiftLoop
from tests.deploys import Till, a_till, booking, step_of
from tests.doubtcast import due_now
from tests.running import eventually, manage
from tests.shop import assert_verifies

__all__ = ["a_till"]

NAME = "host-1:17"


@pytest.mark.django_db(transaction=True)
def test_a_call_longer_than_its_lease_is_never_claimed_again_while_its_worker_lives(
    till: Till, settings: Any
) -> None:
    """Case C01: the lease is renewed by a heartbeat; how long ago it began says nothing."""
    settings.SAGA_LEASE_S = settings.SAGA_SHIFT_LEASE_S = 1.0
    settings.SAGA_LEASE_MARGIN_S = 0.5
    settings.SAGA_SHIFT_LINGER_S = 0.05
    till.release(timeout_s=0.1)
    saga = till.open(booking("one", takes_s=3.5))

    def work() -> None:
        ShiftLoop(shifts.ring_row()).run()
        connection.close()

    worker = threading.Thread(target=work)
    worker.start()
    try:
        eventually(lambda: step_of(saga).state == "executing", "the call is out", 10)
        (attempt,) = Attempt.objects.filter(step__saga=saga)
        assert attempt.lease_until - attempt.started_at < timedelta(seconds=1.1)
        while worker.is_alive():
            outbox.sweep()
            assert till.claim() == []
            time.sleep(0.1)
    finally:
        worker.join(30)
    attempt.refresh_from_db()
    assert attempt.ended_at - attempt.started_at > timedelta(seconds=3)
    assert (attempt.state, step_of(saga).state, till.effects()) == ("done", "committed", 1)
    assert step_of(saga).reclaims == 0
    assert not Entry.objects.filter(saga_id=saga, kind="attempt.expired").exists()
    assert_verifies()


def test_a_restarted_worker_of_the_same_name_owns_nothing_of_the_dead_ones(till: Till) -> None:
    """Case C03: what a claim must show is random and new each time; a name shows nothing."""
    till.release(retries=3)
    dead, reborn = shifts.ring_row(), shifts.ring_row()
    assert shifts.begin(dead, NAME, 4)
    saga = till.open(booking("one"))
    (orphan,) = claim(dead, 1)
    assert shifts.begin(reborn, NAME, 4)
    lease = Attempt.objects.get(pk=orphan.attempt).lease_until
    held = {"id": str(orphan.attempt), "token": str(uuid4()), "lease_s": 3600.0}
    shifts.beat(reborn, 3, 0, [held])
    assert Attempt.objects.get(pk=orphan.attempt).lease_until == lease
    let_run_out(orphan.attempt)
    shifts.beat(reborn, 3, 0, [held])
    assert expired_attempts() == [orphan.attempt]
    outbox.sweep()
    assert step_of(saga).state == "unknown"
    for _ in range(2):  # looked for twice, and not there: it may run again
        due_now()
        (look,) = claim(reborn, 1)
        till.answer([look], look.tool.probe(look.call))
    due_now()
    (again,) = claim(reborn, 1)
    assert again.token != orphan.token
    till.answer([orphan], Failed("the dead one speaks"))
    assert step_of(saga).state == "executing"
    till.answer([again], again.tool.run(again.call))
    assert (step_of(saga).state, till.effects()) == ("committed", 1)


def let_run_out(attempt: Any) -> None:
    started = Attempt.objects.get(pk=attempt).started_at
    Attempt.objects.filter(pk=attempt).update(lease_until=started)


@pytest.mark.parametrize("value", ["0", "-1", "0.9", "nan", "inf", "none"])
@pytest.mark.parametrize("name", ["SAGA_LEASE_S", "SAGA_SHIFT_LEASE_S"])
def test_a_lease_of_no_time_is_refused_at_start(tmp_path: Path, name: str, value: str) -> None:
    """Case C19: nothing, zero and less are three inputs, and none of them is "no lease"."""
    refused = manage(tmp_path / "home", "check", **{name: value})
    assert refused.returncode == 1
    assert refused.stderr.startswith(f"{name}: ")


def test_a_claim_without_a_lease_cannot_be_written(till: Till) -> None:
    """Case C19: the database refuses it, so that none can wait for an end that never comes."""
    saga = till.open(booking("one"))
    (taken,) = till.claim()
    with pytest.raises(IntegrityError, match="lease_until"), transaction.atomic():
        Attempt.objects.filter(pk=taken.attempt).update(lease_until=None)
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT table_name, is_nullable FROM information_schema.columns WHERE column_name = "
            "'lease_until' AND table_name IN ('ledger_attempt', 'ledger_shift') ORDER BY 1"
        )
        assert cursor.fetchall() == [("ledger_attempt", "NO"), ("ledger_shift", "NO")]
    # One that is over as soon as it begins is over: found out about, and not in the way for ever.
    let_run_out(taken.attempt)
    assert taken.attempt is not None
    assert expire_attempt(taken.attempt)
    assert step_of(saga).state == "unknown"
