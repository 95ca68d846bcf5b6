"""For many who are woken by one stroke, one reads: and each has what it would have read itself."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from uuid import uuid4

import psycopg
import pytest
from django.db import connection, connections, transaction

from ledger import storage, wake
from ledger.models import Step
from ledger.queries import documents
from tests.apicast import Caller, a_shift, tools_text
from tests.registered import registered
from tests.running import eventually

pytestmark = pytest.mark.django_db(transaction=True)
Told = list[Any]


class Reader:
    """Reads as `documents.rows_together` does; what it was asked for."""

    def __init__(self, error: str = "") -> None:
        self.asked: list[Sequence[str]] = []
        self._error = error

    def __call__(self, ears: psycopg.Connection[Any], keys: Sequence[str]) -> Mapping[str, str]:
        self.asked.append(keys)
        if self._error:
            ears.execute(self._error)
        found = storage.rows_on(ears, "SELECT key FROM unnest(%s::text[]) AS k (key)", [list(keys)])
        return {row.key: f"row of {row.key}" for row in found}


@pytest.fixture(autouse=True)
def hears(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The bell rings as in a console that is up, and nobody looks for want of one."""
    monkeypatch.setattr(wake, "SAFETY_NET_S", 20.0)
    listening()
    yield
    wake.close()


def listening() -> None:
    with wake.watching("nobody"):
        assert wake.hub().listening.wait(10)
    time.sleep(0.1)  # whoever registered before is told to look once; that shall be over


def told(reader: wake.Reader, about: Sequence[str], *rung: str) -> Told:
    """What waiters for these steps of a saga have when the bell rings once for all of `rung`."""
    saga = str(uuid4())

    def wait(watch: wake.Watch, step: str) -> Any:
        return watch.wait(lambda: (watch.brought(),), 30, about=step, look_first=False)[0]  # type: ignore[index]

    with ExitStack() as stack, ThreadPoolExecutor(len(about)) as pool:
        watches = [stack.enter_context(wake.watching(saga, reader=reader)) for _ in about]
        coming = [pool.submit(wait, *both) for both in zip(watches, about, strict=True)]
        eventually(lambda: all(watch.about for watch in watches), "they wait")
        with transaction.atomic():
            for step in rung or about:
                storage.rows("SELECT pg_notify(%s, %s)", [wake.CHANNEL, f"{saga} {step}"])
        return [future.result(40) for future in coming]


def test_one_reads_for_all_who_are_woken_by_one_stroke() -> None:
    reader = Reader()
    assert told(reader, ["a", "b", "c"]) == ["row of a", "row of b", "row of c"]
    assert reader.asked == [["a", "b", "c"]]


def test_who_is_woken_alone_looks_itself() -> None:
    reader = Reader()
    assert told(reader, ["a"]) == [None]
    assert reader.asked == []


def test_nothing_is_read_of_what_nobody_waits_for() -> None:
    reader = Reader()
    assert told(reader, ["a", "b"], "x", "b", "y", "a", "z") == ["row of a", "row of b"]
    assert reader.asked == [["a", "b"]]


@pytest.mark.parametrize(
    "error", ["SELECT 1 / 0", "SELECT pg_terminate_backend(pg_backend_pid())"], ids=["read", "lost"]
)
def test_where_it_cannot_be_read_each_looks_itself(error: str) -> None:
    began = time.monotonic()
    assert told(Reader(error), ["a", "b"]) == [None, None]
    assert time.monotonic() - began < 10
    time.sleep(0.5)
    listening()
    assert told(Reader(), ["a", "b"]) == ["row of a", "row of b"]


def test_what_was_brought_is_had_once() -> None:
    with wake.watching("saga", reader=Reader()) as watch:
        watch.about = "a"
        watch.tell(["saga", "a"], {"a": "row", "b": "another"})
        watch.tell(["saga", "b"], {"b": "another"})
        assert watch.brought() == "row"
        assert watch.brought() is None


def test_a_document_is_the_same_however_it_was_read(
    agent: Caller, settings: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, unused_url: str
) -> None:
    """Six callers wait for steps whose target refuses them."""
    monkeypatch.setattr(wake, "MANY", 1)
    brought: list[int] = []
    read = documents.rows_together

    def counted(ears: psycopg.Connection[Any], steps: Sequence[str]) -> dict[str, Any]:
        found = read(ears, steps)
        brought.append(len(found))
        return found

    monkeypatch.setattr(documents, "rows_together", counted)
    settings.SAGA_SHIFT_THREADS = 8
    sagas = [agent.open(f"task-{number}") for number in range(6)]

    def ask(saga: str) -> Any:
        try:
            return agent.propose(saga, Prefer="wait=20").json()
        finally:
            connections.close_all()

    tools = tools_text(unused_url).replace(
        'tier = "compensatable"', 'tier = "compensatable"\nretries = 0'
    )
    with registered(settings, tmp_path, tools), ThreadPoolExecutor(6) as pool:
        coming = [pool.submit(ask, saga) for saga in sagas]
        eventually(lambda: Step.objects.count() == 6, "all are proposed")
        connection.close()
        with a_shift(settings):
            answers = [future.result(40) for future in coming]
    assert [answer["state"] for answer in answers] == ["failed"] * 6
    assert answers == [agent.get(f"steps/{answer['id']}").json() for answer in answers]
    assert sum(brought) >= 5  # but for one that was told before it waited
