"""A yes that ends while a worker claims: nothing runs, and people are asked anew and told why."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Thread
from typing import Any

import psycopg
import pytest
from django.db import connection

from approvals.services import deciding
from ledger.bearer import Bearer
from ledger.models import Attempt, OutboxMessage
from ledger.services import shifts
from ledger.services.assignments import Assignment
from ledger.shift import ShiftLoop
from ledger.states import StepState
from tests.approvalcast import Case, claim
from tests.running import eventually
from tests.shop import assert_verifies
from tests.stage import REFUND, Stage, a_stage

__all__ = ["a_stage"]
pytestmark = pytest.mark.django_db(transaction=True)

BUSY = "INSERT INTO ledger_resourcehold (resource, step_id, since) VALUES (%s, %s, now())"
END = """
UPDATE approvals_approval SET state = 'superseded', ended_at = clock_timestamp(),
    ended_why = 'It was ended by hand.' WHERE id = %s
"""
# How many wait for a lock that this connection holds.
BLOCKED = "SELECT count(*) FROM pg_stat_activity WHERE %s = ANY(pg_blocking_pids(pid))"


@contextmanager
def another(console_env: dict[str, str]) -> Iterator[psycopg.Connection[Any]]:
    """Somebody else's connection, in a transaction of its own until it ends it."""
    with psycopg.connect(console_env["DATABASE_URL"]) as other:
        yield other


def someone_waits_for(holder: psycopg.Connection[Any]) -> None:
    def waits() -> bool:
        with connection.cursor() as cursor:
            cursor.execute(BLOCKED, [holder.info.backend_pid])
            return bool(cursor.fetchone()[0])

    eventually(waits, "somebody waits for the lock", within_s=10)


class Claiming(Thread):
    """A worker that claims, in a thread and with a connection of its own."""

    found: list[Assignment] | BaseException

    def run(self) -> None:
        try:
            self.found = claim()
        except BaseException as error:
            self.found = error
        finally:
            connection.close()

    def result(self) -> list[Assignment] | BaseException:
        self.join(20)
        assert not self.is_alive()
        return self.found


def approved(stage: Stage, seconds: float = 60.0) -> Case:
    """A refund with a yes that lasts so long."""
    saga = stage.saga()
    case = Case(stage.agent, saga, stage.refund(saga))
    case.ask_again(seconds=seconds)
    who = Bearer(user_id=stage.approver.pk, username=stage.approver.username)
    deciding.approve(who, case.request.pk, args_digest=case.digest)
    return case


@contextmanager
def between_the_look_and_the_start(
    case: Case, other: psycopg.Connection[Any]
) -> Iterator[Claiming]:
    """A claim that has looked at the yes, and waits for its resource before it starts."""
    other.execute(BUSY, [f"payment:{REFUND['payment_intent']}", case.step])
    worker = Claiming()
    worker.start()
    someone_waits_for(other)
    yield worker
    worker.join(20)


def assert_asked_anew(case: Case, old: Any, why: str) -> None:
    old.refresh_from_db()
    assert (old.state, old.used_at) == ("superseded", None)
    assert case.request.pk != old.pk
    assert (case.request.state, case.request.why) == ("pending", why)
    assert case.row.state == StepState.AWAITING_APPROVAL
    assert not Attempt.objects.exists()
    assert not OutboxMessage.objects.exclude(parked_why="").exists()
    assert case.kinds("step.").count("step.held_again") == 1
    assert claim() == []
    assert_verifies()


def test_a_yes_whose_time_ends_in_the_middle_of_a_claim_is_asked_for_again(
    stage: Stage, console_env: dict[str, str]
) -> None:
    case = approved(stage, seconds=1.5)
    old = case.request
    with another(console_env) as other, between_the_look_and_the_start(case, other) as worker:
        time.sleep(max(0.0, old.yes_until.timestamp() - time.time()) + 0.05)
        other.rollback()
        assert worker.result() == []
    assert_asked_anew(case, old, "The yes was not used in time.")


def test_a_shift_that_meets_such_an_end_goes_on_and_shows_no_error(
    stage: Stage, console_env: dict[str, str], caplog: pytest.LogCaptureFixture, settings: Any
) -> None:
    """It is with people, and not set aside as a row that no claim can take."""
    settings.SAGA_SHIFT_LINGER_S = 0.2
    case = approved(stage, seconds=4.0)
    old = case.request
    with another(console_env) as other:
        other.execute(BUSY, [f"payment:{REFUND['payment_intent']}", case.step])
        shift = ShiftLoop(shifts.ring_row())
        worker = Thread(target=lambda: (shift.run(), connection.close()))
        worker.start()
        someone_waits_for(other)
        time.sleep(max(0.0, old.yes_until.timestamp() - time.time()) + 0.05)
        other.rollback()
        worker.join(20)
        assert not worker.is_alive()
    assert "refused" not in caplog.text
    assert_asked_anew(case, old, "The yes was not used in time.")


def test_nobody_can_end_a_yes_between_the_look_at_it_and_the_start(
    stage: Stage, console_env: dict[str, str]
) -> None:
    """Whoever tries, by hand even, waits until the attempt is there, and comes too late."""
    case = approved(stage)
    with (
        another(console_env) as other,
        another(console_env) as psql,
        between_the_look_and_the_start(case, other) as worker,
    ):
        ends = Thread(target=lambda: (psql.execute(END, [case.request.pk]), psql.rollback()))
        ends.start()
        eventually(
            lambda: psql.info.transaction_status == psycopg.pq.TransactionStatus.ACTIVE, "it tries"
        )
        time.sleep(0.2)
        assert ends.is_alive()
        other.rollback()
        found = worker.result()
        ends.join(20)
    assert [one.step for one in found] == [case.step]
    assert (case.request.state, case.row.state) == ("approved", StepState.EXECUTING)
    assert case.request.used_at is not None


def test_a_yes_that_somebody_is_just_ending_is_waited_for_and_voided(
    stage: Stage, console_env: dict[str, str]
) -> None:
    """What is not committed yet is not seen by a look alone: the look takes the row's lock."""
    case = approved(stage)
    old = case.request
    with another(console_env) as other:
        other.execute(END, [old.pk])
        worker = Claiming()
        worker.start()
        someone_waits_for(other)
        other.commit()
        assert worker.result() == []
    assert_asked_anew(case, old, "The last request about it is superseded.")


def test_what_the_database_refuses_for_good_is_shown_as_a_sentence(
    stage: Stage, settings: Any
) -> None:
    """A row that no claim can take shows what Postgres says of it, and no statement of ours."""
    settings.SAGA_SHIFT_LINGER_S = 0.2
    case = approved(stage)
    wall = """
        CREATE FUNCTION closed() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
            RAISE EXCEPTION 'this attempt is closed' USING ERRCODE = 'P0409'; END $$;
        CREATE TRIGGER closed BEFORE INSERT ON ledger_attempt
            FOR EACH ROW EXECUTE FUNCTION closed();
    """
    with connection.cursor() as cursor:
        cursor.execute(wall)
    try:
        assert ShiftLoop(shifts.ring_row()).run() == 0
    finally:
        with connection.cursor() as cursor:
            cursor.execute("DROP FUNCTION closed() CASCADE")
    (message,) = OutboxMessage.objects.filter(step=case.step)
    assert message.parked_why == "The database refused it: this attempt is closed."
    assert (case.row.state, case.request.used_at) == (StepState.QUEUED, None)
