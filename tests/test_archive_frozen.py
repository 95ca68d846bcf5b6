"""A freeze whose saga has ended, or left for the archive, holds nothing and nobody up."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from uuid import UUID

import pytest
from django.db import connection

from approvals.models import Approval
from approvals.services import escalating
from ledger import outbox
from ledger.models import Freeze, Saga
from ledger.models.fields import ClockTimestamp
from ledger.services import closing, freezing
from ledger.services.restoring import restore_file
from tests.approvalcast import behind_the_ledger
from tests.archivecast import archive_all
from tests.deploys import Till, a_till, booking, state_of
from tests.doubtcast import ONA
from tests.shop import assert_verifies
from tests.stage import Stage, a_stage

__all__ = ["a_stage", "a_till"]
# The walls of the archive look at COMMIT, and what a sweep fails at is rolled back.
pytestmark = pytest.mark.django_db(transaction=True)


def ended(till: Till) -> UUID:
    saga = till.open(booking("one"))
    till.work()
    closing.complete(saga, bearer=till.agent)
    assert state_of(saga) == "completed"
    return saga


def frozen(saga: UUID) -> UUID:
    return freezing.freeze("saga", str(saga), reason="an incident", actor=ONA).pk


def times_are_over() -> None:
    Freeze.objects.update(expires_at=ClockTimestamp() - timedelta(seconds=1))


def test_the_freeze_of_a_saga_that_has_left_is_lifted(till: Till, tmp_path: Path) -> None:
    saga = ended(till)
    stop = frozen(saga)
    report = archive_all(tmp_path)
    assert not Saga.objects.filter(pk=saga).exists()
    assert freezing.lift(stop, actor=ONA)
    assert not freezing.lift(stop, actor=ONA)
    assert [one.why_not for one in restore_file(report.path)] == [""]
    assert state_of(saga) == "completed"
    assert_verifies()


def test_a_freeze_that_outlived_its_saga_stops_no_other_from_being_lifted(
    till: Till, tmp_path: Path
) -> None:
    frozen(ended(till))
    archive_all(tmp_path)
    waits = till.open(booking("two"))
    frozen(waits)
    times_are_over()
    assert outbox.sweep() == 2
    assert state_of(waits) == "running"
    assert not Freeze.objects.filter(lifted_at=None).exists()


@pytest.mark.by_hand
def test_one_freeze_that_cannot_be_lifted_stops_no_other(till: Till) -> None:
    with connection.cursor() as cursor:  # as an owner of the tables could
        cursor.execute("ALTER TABLE ledger_freeze DROP CONSTRAINT ledger_freeze_of_saga")
    bad = Freeze.objects.create(scope="saga", value="no saga", reason="?", created_by=ONA)
    waits = till.open(booking("one"))
    frozen(waits)
    times_are_over()
    assert outbox.sweep() == 1
    assert state_of(waits) == "running"
    assert list(Freeze.objects.filter(lifted_at=None)) == [bad]


@pytest.mark.by_hand
def test_one_request_that_cannot_be_told_of_again_stops_no_other(stage: Stage) -> None:
    saga = stage.saga()
    bad, good = stage.refund(saga), stage.refund(saga, "again", payment_intent="pi_2")
    with behind_the_ledger() as cursor:
        cursor.execute(
            "UPDATE approvals_approval SET remind = '1 s', remind_at = clock_timestamp()"
        )
        cursor.execute(
            "UPDATE approvals_approval SET needs = '[{}]', remind_at = remind_at - interval '1 s' "
            "WHERE step_id = %s",
            [bad],
        )
    assert escalating.remind() == 1
    assert Approval.objects.get(step=good).reminders == 1
    assert Approval.objects.get(step=bad).reminders == 0
