"""RQ is a doorbell: what it holds, loses, or claims to know changes nothing (rule 5.3)."""

from __future__ import annotations

import ast
import json
import time
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from rq import Queue
from rq.job import Job, JobStatus
from rq.registry import FailedJobRegistry, StartedJobRegistry
from rq.serializers import JSONSerializer

from ledger.outbox import QUEUE
from saga_console.home import BASE_DIR
from tests.proofcast import Agent, Console, address, step, wait_for_states
from tests.running import eventually


def shift_of(console: Console, saga: str) -> str:
    """The shift whose call is out for this saga."""
    with console.database() as database:
        found: Any = database.execute(
            "SELECT a.shift_id FROM ledger_attempt a JOIN ledger_step s ON s.id = a.step_id "
            "WHERE s.saga_id = %s AND a.state = 'started'",
            [saga],
        ).fetchone()
    return str(found["shift_id"])


def job_of(console: Console, shift: str) -> Job:
    """The RQ job that rang for a shift."""
    with console.redis() as redis:
        registry = StartedJobRegistry(QUEUE, connection=redis, serializer=JSONSerializer)
        ids = registry.get_job_ids(cleanup=False)
        jobs = Job.fetch_many(ids, connection=console.redis(), serializer=JSONSerializer)
    (mine,) = [job for job in jobs if job and list(job.args) == [shift]]
    return mine


@pytest.mark.parametrize("belief", ["failed", "abandoned", "gone"])
def test_whatever_rq_believes_of_a_job_its_step_goes_its_own_way(
    console: Console, prover: Agent, belief: str
) -> None:
    """Case C30: a job that is at work is marked failed, given up, or deleted under the worker."""
    email = address()
    eventually(lambda: not console.shifts_at_work(), "every shift has ended")
    with console.wire as wire:
        saga = prover.open(step("one", email, "proof.patient"))
        eventually(lambda: wire.held > 0, "the call is out")
        job = job_of(console, shift_of(console, saga))
        before = prover.entries(saga)
        make_rq_believe(job, belief)
        time.sleep(1.2)  # a sweep, and two turns of the relay
        assert prover.states(saga) == ["executing"]
        assert prover.entries(saga) == before
    wait_for_states(prover, [saga], "committed")
    assert len(console.customers(email)) == 1
    assert prover.kinds(saga)["attempt.started"] == 1


def make_rq_believe(job: Job, belief: str) -> None:
    where = {"connection": job.connection, "serializer": JSONSerializer}
    if belief == "gone":
        job.delete()
    elif belief == "failed":
        job.set_status(JobStatus.FAILED)
        FailedJobRegistry(QUEUE, **where).add(job, ttl=60)
    else:
        started = StartedJobRegistry(QUEUE, **where)
        for member in job.connection.zrange(started.key, 0, -1):
            job.connection.zadd(started.key, {member.decode(): 1})  # its heartbeat was long ago
        started.cleanup()
        assert job.get_status() == JobStatus.FAILED


def test_a_job_is_json_and_carries_the_name_of_a_shift_alone(
    console: Console, prover: Agent
) -> None:
    secret = address()
    with console.redis() as redis, console.stopped_workers():
        saga = prover.open(step("one", secret))
        queue = Queue(QUEUE, connection=redis, serializer=JSONSerializer)
        eventually(lambda: queue.get_job_ids() != [], "the relay has rung", 20)
        job = Job.fetch(queue.get_job_ids()[0], connection=redis, serializer=JSONSerializer)
        name, _, args, kwargs = json.loads(job.data)
        assert (name, len(args), kwargs, job.meta) == ("ledger.jobs.shift", 1, {}, {})
        assert UUID(args[0])
        assert secret.encode() not in b"".join(redis.hgetall(job.key).values()) + job.data
    wait_for_states(prover, [saga], "committed")


def test_each_worker_listens_on_exactly_one_queue(console: Console) -> None:
    """Case C28. RQ moves a job atomically (BLMOVE) for a worker of one queue; for one of several
    it pops the job off (BLPOP), and a worker that dies then has lost it."""
    refused = console.manage("worker", QUEUE, "another")
    assert refused.returncode != 0
    assert "unrecognized arguments" in refused.stderr
    with console.redis() as redis:

        def waiting(command: str) -> int:
            return sum(client["cmd"] == command for client in redis.client_list())

        eventually(lambda: waiting("blmove") == len(console.children("worker")), "all listen", 20)
        assert waiting("blpop") == 0
        assert redis.smembers("rq:queues") <= {f"rq:queue:{QUEUE}".encode()}


def test_a_shift_runs_in_its_workers_own_process_and_connection(
    console: Console, prover: Agent
) -> None:
    """Case C38: nothing is forked, so no socket is inherited; one connection serves many shifts."""
    workers = console.children("worker")
    with console.wire as wire:
        saga = prover.open(step("one", address(), "proof.patient"))
        eventually(lambda: wire.held > 0, "the call is out")
        at_work = console.shifts_by_worker()
        assert [forked(pid) for pid in workers.values()] == [[], []]
    wait_for_states(prover, [saga], "committed")
    before = backends(console)
    for _ in range(4):
        time.sleep(0.6)  # longer than a shift lingers: the next step is another shift's
        saga = prover.open(step("one", address()))
        wait_for_states(prover, [saga], "committed")
    after = console.shifts_by_worker()
    assert after.keys() <= {*workers.values(), *at_work}
    assert sum(after.values()) >= sum(at_work.values()) + 4
    assert before & backends(console)


def forked(pid: int) -> list[str]:
    """The child processes of a process."""
    tasks = Path(f"/proc/{pid}/task").iterdir()
    return [c for task in tasks for c in (task / "children").read_text(encoding="ascii").split()]


def backends(console: Console) -> set[tuple[int, Any]]:
    """The workers' connections as Postgres knows them."""
    with console.database("postgres") as superuser:
        rows = superuser.execute(
            "SELECT pid, backend_start FROM pg_stat_activity "
            "WHERE application_name LIKE 'saga-worker%' AND query NOT LIKE 'LISTEN%'"
        ).fetchall()
    return {(row["pid"], row["backend_start"]) for row in rows}


@pytest.mark.parametrize("command", ["relay", "worker"])
def test_a_redis_that_may_evict_keys_is_refused_by_what_runs_alone(
    console: Console, command: str
) -> None:
    """Case C33; tests/test_parts.py has the same of `up`."""
    with console.redis() as redis:
        redis.config_set("maxmemory-policy", "allkeys-lru")
        try:
            refused = console.manage(command)
        finally:
            redis.config_set("maxmemory-policy", "noeviction")
    assert refused.returncode == 1
    assert refused.stderr.count("\n") == 1
    assert "maxmemory-policy is allkeys-lru" in refused.stderr
    assert "set it to noeviction" in refused.stderr


def test_only_the_outbox_enqueues() -> None:
    """Case C36: every other way to the queue would go round the commit."""
    calls = {
        path.relative_to(BASE_DIR).as_posix()
        for app in ("ledger", "approvals", "saga_console")
        for path in (BASE_DIR / app).rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Attribute) and node.attr.startswith(("enqueue", "schedule_job"))
    }
    assert calls == {"ledger/outbox.py"}
