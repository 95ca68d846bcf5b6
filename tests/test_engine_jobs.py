"""What RQ calls when it calls a job failed: whatever it hands over, it gets no second error."""

from __future__ import annotations

import logging
from typing import Any
from uuid import uuid4

import pytest
from django.db import connection, transaction
from redis import Redis
from rq.job import Job
from rq.serializers import JSONSerializer

from ledger import jobs
from ledger.models import Shift
from ledger.services import shifts


def job(*args: Any) -> Job:
    """A job as its queue would hand it over. Nothing is sent to the queue."""
    nowhere = Redis(port=1)
    return Job.create("ledger.jobs.shift", args, connection=nowhere, serializer=JSONSerializer)


def unreadable() -> Job:
    """One whose arguments nobody can read."""
    found = Job("unreadable", connection=Redis(port=1), serializer=JSONSerializer)
    found.data = b"\x80 no JSON"
    return found


@pytest.mark.django_db(transaction=True)
def test_a_shifts_failed_job_is_counted() -> None:
    shift = shifts.ring_row()
    jobs.failed(job(str(shift)), None, ValueError, ValueError(), None)
    assert Shift.objects.get(pk=shift).ignored == 1


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize(
    "given",
    [job("no uuid"), job(), job(7), job(None), job([]), unreadable()],
    ids=["no uuid", "nothing", "number", "null", "list", "unreadable"],
)
def test_what_is_no_shift_is_logged_and_no_error(
    given: Job, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.ERROR):
        jobs.failed(given)
    assert f"the failure of job {given.id} was not counted" in caplog.text


@pytest.mark.django_db(transaction=True)
def test_a_connection_that_is_gone_is_logged_and_no_error(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.ERROR), transaction.atomic():
        connection.close()
        jobs.failed(job(str(uuid4())))
    assert "was not counted" in caplog.text
