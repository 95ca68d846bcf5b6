"""Cases of what is lost by a restart, or said while nobody listens: nothing."""

from __future__ import annotations

import re
import time
from uuid import UUID

import httpx
import pytest
from django.db import connection
from rq import Queue
from rq.job import Job, JobStatus
from rq.registry import FailedJobRegistry, StartedJobRegistry
from rq.serializers import JSONSerializer

from approvals.services import deciding
from ledger.models import Attempt, OutboxMessage
from ledger.models.fields import ClockTimestamp
from ledger.outbox import QUEUE
from ledger.outcomes import Failed
from ledger.services.recording import Finished, record
from tests.approvalcast import claim, person, tools, waiting_case
from tests.proofcast import Agent, Console, address, approve, refund, step, wait_for_states
from tests.running import eventually
from tests.test_proof_crash import LEASE_S, REDRIVEN_WITHIN_S, restart_postgres
from tests.test_proof_woken import at_the_pages, told

__all__ = ["tools"]


def request_in(person: Agent, saga: str) -> dict[str, object]:
    waiting = person.client.get("approvals", params={"state": "pending"}).json()["items"]
    (request,) = [one for one in waiting if one["saga_id"] == saga]
    return dict(request)


def test_a_request_outlives_every_process_that_knew_of_it(console: Console, prover: Agent) -> None:
    """Case E1: web, relay and workers are killed between the proposal and the answer."""
    approver = console.operator("erin-who-approves")
    saga = refund(console, prover)
    wait_for_states(prover, [saga], "awaiting_approval")
    before = request_in(approver, saga)
    console.kill_web()
    assert set(console.kill()) >= {"relay", "worker-1", "worker-2"}
    assert not answers(console)
    eventually(lambda: answers(console), "the web process answers", 30)
    assert request_in(approver, saga) == before
    page = at_the_pages(console, "erik-who-watches").get(f"/sagas/{saga}/")
    assert "refund" in told(page.text)
    approve(approver, saga)
    wait_for_states(prover, [saga], "committed")
    assert not [
        one
        for one in approver.client.get("approvals", params={"state": "pending"}).json()["items"]
        if one["saga_id"] == saga
    ]


def answers(console: Console) -> bool:
    try:
        return httpx.get(f"{console.url}/readyz", timeout=5).status_code == 200
    except httpx.TransportError:
        return False


def test_a_yes_said_while_nobody_listens_counts(console: Console, prover: Agent) -> None:
    """Case E11: neither relay nor worker hears of it; who comes later finds it in the outbox."""
    approver = console.operator("eli-who-approves")
    saga = refund(console, prover)
    wait_for_states(prover, [saga], "awaiting_approval")
    eventually(lambda: not console.shifts_at_work(), "every shift has ended")
    # Dead, not asleep: a socket that still takes the NOTIFY would keep it for them.
    console.kill("relay", "worker")
    approve(approver, saga)
    wait_for_states(prover, [saga], "committed", within_s=30)
    assert prover.kinds(saga)["attempt.started"] == 1


def test_what_a_dead_worker_left_is_found_though_postgres_went_away_meanwhile(
    console: Console, prover: Agent
) -> None:
    """Case C40: finding out is a loop. A relay that lost Postgres in a turn looks in the next."""
    email = address()
    with console.wire as wire:
        saga = prover.open(step("one", email))
        eventually(lambda: wire.held > 0, "the call is out")
        console.kill("worker")
        killed_at = time.monotonic()
        restart_postgres(console)
    time.sleep(max(0.0, killed_at + LEASE_S - 0.5 - time.monotonic()))
    restart_postgres(console)  # about when the lease ends and the sweep begins to find it
    wait_for_states(prover, [saga], "committed", within_s=REDRIVEN_WITHIN_S)
    assert len(console.customers(email)) == 1
    assert prover.kinds(saga)["attempt.expired"] == 1
    console.assert_verifies()


COUNT_STARTED = f"print(django_rq.get_queue({QUEUE!r}).started_job_registry.count)"


def look_abandoned(job: Job) -> None:
    """As RQ has a job whose worker it has not heard of for long."""
    job.set_status(JobStatus.STARTED)
    started = StartedJobRegistry(QUEUE, connection=job.connection, serializer=JSONSerializer)
    job.connection.zadd(started.key, {f"{job.id}:an-execution": 1})


def ignored(console: Console) -> int:
    """What `/metrics` says was delivered again or called failed, and heeded by nobody."""
    told = httpx.get(f"{console.url}/metrics", timeout=5).text
    found = re.search(r"^saga_queue_reports_ignored (\d+)\.0$", told, re.MULTILINE)
    assert found, told
    return int(found[1])


def test_what_rq_says_of_a_job_after_its_end_changes_no_step(
    console: Console, prover: Agent
) -> None:
    """Case H14: the step is done; that its job is then called failed, or delivered again, is
    counted, and heeded by nobody."""
    email = address()
    eventually(lambda: not console.shifts_at_work(), "every shift has ended")
    with console.redis() as redis:
        with console.stopped_workers():
            saga = prover.open(step("one", email))
            queue = Queue(QUEUE, connection=redis, serializer=JSONSerializer)
            eventually(lambda: queue.get_job_ids() != [], "the relay has rung", 20)
            job = Job.fetch(queue.get_job_ids()[0], connection=redis, serializer=JSONSerializer)
        wait_for_states(prover, [saga], "committed")
        eventually(lambda: not console.shifts_at_work(), "every shift has ended")
        before = prover.saga(saga), prover.entries(saga)
        counted = ignored(console)
        job.save()
        look_abandoned(job)
        # Who only counts what is at work cleans up by the way (rq.md), and calls it failed.
        console.manage("shell", "-c", f"import django_rq; {COUNT_STARTED}")
        assert job.get_status() == JobStatus.FAILED
        assert ignored(console) == counted + 1
        failed = FailedJobRegistry(QUEUE, connection=redis, serializer=JSONSerializer)
        assert job.id in failed.get_job_ids()
        failed.requeue(job.id)  # as an operator would from RQ's own dashboard
        eventually(lambda: not Job.exists(job.id, connection=redis), "a worker has heard it", 20)
    assert ignored(console) == counted + 2
    time.sleep(1.2)  # a sweep, and two turns of the relay
    assert (prover.saga(saga), prover.entries(saga)) == before
    assert len(console.customers(email)) == 1


@pytest.mark.django_db(transaction=True)
@pytest.mark.usefixtures("tools")
def test_a_start_that_fails_after_a_yes_is_seen_and_tried_again_under_the_same_yes() -> None:
    """Case E4: the yes and the intention to run are one commit, so there is always something to
    try again; nobody is asked a second time for what certainly did not happen."""
    ana = person("ana", "approvers")
    case = waiting_case()
    assert not OutboxMessage.objects.filter(step_id=case.step).exists()
    deciding.approve(ana, case.request.pk, args_digest=case.digest)
    assert written_together("approvals_decision", "ledger_outboxmessage")
    request = case.request.pk
    (taken,) = claim()
    outcome = taken.tool.run(taken.call)  # really: nothing listens at that address
    assert isinstance(outcome, Failed)
    assert outcome.retryable
    record(UUID(int=1), [Finished(taken, outcome)])
    assert case.row.state == "queued"
    assert "onnect" in str(case.row.error)
    OutboxMessage.objects.filter(step_id=case.step, taken_at=None).update(due_at=ClockTimestamp())
    (again,) = claim()
    assert (again.call.args, again.call.attempt) == (taken.call.args, 2)
    assert (case.request.pk, case.request.state) == (request, "approved")
    assert case.kinds() == ["approval.requested", "approval.approved"]
    assert Attempt.objects.filter(step_id=case.step).count() == 2


def written_together(*tables: str) -> bool:
    """Whether the newest rows of these tables were inserted by one transaction."""
    with connection.cursor() as cursor:
        found = set()
        for table in tables:
            cursor.execute(f"SELECT xmin::text FROM {table} ORDER BY id DESC LIMIT 1")
            found.add(cursor.fetchone()[0])
    return len(found) == 1
