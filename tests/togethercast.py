"""Agents that propose at the same moment, and what became of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from typing import Any
from uuid import uuid4

import pytest
from django.db import connection, connections
from psycopg_pool import ConnectionPool, PoolTimeout

from ledger import storage
from ledger.models import Entry, Saga, Step
from ledger.services import together
from ledger.services.gathering import Gathering
from ledger.services.verifying import verify
from tests.apicast import Answer, Caller
from tests.running import eventually

Asks = Callable[[], Answer]


def gathering() -> Gathering[Any]:
    """That of this process."""
    return together._gathering


@contextmanager
def leading() -> Iterator[None]:
    """Another proposal is under way."""
    with gathering().turn(None, key=None):
        yield


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who waits to be led waits for it, however busy the machine is."""
    monkeypatch.setattr(gathering(), "_patience_s", 60.0)


@contextmanager
def threads(asks: Sequence[Asks], *, in_order: bool = False) -> Iterator[list[Future[Answer]]]:
    """Each in a thread of its own, which leaves no connection behind.

    `in_order`: each once the one before it waits to be led.
    """

    def act(ask: Asks) -> Answer:
        try:
            return ask()
        finally:
            connections.close_all()

    coming = []
    with ThreadPoolExecutor(len(asks)) as pool:
        for number, ask in enumerate(asks, 1):
            coming.append(pool.submit(act, ask))
            if in_order:
                eventually(lambda number=number: _have_come(coming) == number, "it has come", 30)
        yield coming


def _have_come(coming: Sequence[Future[Answer]]) -> int:
    """Those who wait to be led, and those who could not be led and were answered at once."""
    ready = sum(one.is_ready for one in gathering()._waiting)
    return ready + sum(one.done() for one in coming)


def at_once(*asks: Asks) -> list[Answer]:
    """What these are answered when they come, in this order, while another is at it."""
    with ExitStack() as stack:
        with leading():
            coming = stack.enter_context(threads(asks, in_order=True))
        return [one.result(60) for one in coming]


def plain(agent: Caller, count: int) -> tuple[list[str], list[Asks]]:
    """Sagas, and a new step for each."""
    sagas = [agent.open(f"task-{uuid4()}") for _ in range(count)]

    def ask(saga: str) -> Asks:
        return lambda: agent.propose(saga, args={"id": saga})

    return sagas, [ask(saga) for saga in sagas]


def transactions(sagas: Sequence[str]) -> int:
    """In how many transactions the steps of these sagas were written."""
    found = storage.rows(
        "SELECT DISTINCT xmin::text FROM ledger_entry "
        "WHERE saga_id = ANY(%s::uuid[]) AND kind = 'step.proposed'",
        [list(sagas)],
    )
    return len(found)


def assert_whole(sagas: Sequence[str], steps: int = 1) -> None:
    """Each saga has its steps once, told once, and the log is the state."""
    for saga in sagas:
        found = Step.objects.filter(saga_id=saga)
        assert sorted(step.position for step in found) == [*range(1, steps + 1)]
        assert Entry.objects.filter(saga_id=saga, kind="step.proposed").count() == steps
        assert Saga.objects.get(pk=saga).step_count == steps
    assert [str(fault) for fault in verify()] == []


def release() -> None:
    """End every transaction that only holds a lock."""
    storage.rows(
        "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE datname = "
        "current_database() AND state = 'idle in transaction' AND query LIKE %s",
        ["SELECT 1 FROM ledger_saga%"],
    )


@contextmanager
def no_connection_left(*, within_s: float) -> Iterator[ConnectionPool[Any]]:
    """Others have all of the pool's, and who wants one waits so long."""
    connection.ensure_connection()
    pool = connection.pool
    assert pool is not None
    taken, usual = [], pool.timeout
    try:
        while True:
            try:
                taken.append(pool.getconn(timeout=within_s))
            except PoolTimeout:
                break
        pool.timeout = within_s
        yield pool
    finally:
        pool.timeout = usual
        for one in taken:
            pool.putconn(one)
