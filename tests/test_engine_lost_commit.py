"""Case P2: the COMMIT was sent and its answer never came. Read back by key, never repeated."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any
from uuid import uuid4

import psycopg
import pytest
from django.db import connection

from ledger.models import Entry, Saga, Step
from ledger.pipeline import channel
from tests.shop import Shop, assert_verifies


@contextmanager
def backend_killed_at_commit(*, before: bool) -> Iterator[None]:
    """Kill this session's Postgres backend around its next COMMIT, as a crash would.

    `before`: the transaction is lost. Otherwise it is committed, and only its answer is lost.
    """
    connection.ensure_connection()
    doomed = connection.connection
    with_statements = channel(doomed)
    alone, together = doomed.commit, with_statements.run
    params = connection.get_connection_params()
    kept = {
        key: params[key] for key in ("dbname", "user", "password", "host", "port") if key in params
    }

    def around(commit: Callable[[], Any]) -> Any:
        doomed.commit = alone  # once only
        with_statements.run = together  # type: ignore[method-assign]
        done = None if before else commit()
        with psycopg.connect(**kept, autocommit=True) as other:
            other.execute("SELECT pg_terminate_backend(%s, 5000)", [doomed.info.backend_pid])
        if before:
            done = commit()
        else:
            doomed.execute("SELECT 1")
        return done

    def run(statements: Any, *, commit: bool = False) -> Any:
        send = partial(together, statements, commit=commit)
        return around(send) if commit else send()

    doomed.commit = partial(around, alone)
    with_statements.run = run  # type: ignore[method-assign]
    yield


@pytest.mark.parametrize("before", [True, False], ids=["lost", "committed"])
def test_a_proposal_whose_commit_was_lost_exists_once(shop: Shop, before: bool) -> None:
    saga = shop.open()
    with backend_killed_at_commit(before=before):
        answer = shop.propose(saga, "one", "crm.customer", args={"email": "lost@example.com"})
    assert answer.kind == "accepted"
    assert Step.objects.get(saga_id=saga).pk == answer.step
    assert Entry.objects.filter(saga_id=saga, kind="step.proposed").count() == 1
    assert_verifies()


@pytest.mark.parametrize("before", [True, False], ids=["lost", "committed"])
def test_a_saga_whose_opening_was_lost_exists_once(shop: Shop, before: bool) -> None:
    task = str(uuid4())
    with backend_killed_at_commit(before=before):
        saga = shop.open(task_id=task)
    assert [found.pk for found in Saga.objects.filter(task_id=task)] == [saga]
