"""A proposal asks for its saga's lock before it is checked: nobody is to feel that."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any

import pytest

from ledger.listening import listen
from tests.apicast import Caller, problem_type

pytestmark = [pytest.mark.usefixtures("tools"), pytest.mark.django_db(transaction=True)]

NO_SUCH_TOOL = {"step_id": "other", "tool": "no.such", "args": {}}
WRONG_ARGS = {"step_id": "other", "tool": "notes.add", "args": {}}


@pytest.fixture
def saga(agent: Caller) -> str:
    opened: str = agent.open()
    assert agent.propose(opened).status_code == 202
    return opened


@contextmanager
def held(saga: str) -> Iterator[None]:
    """By a transition that takes its time."""
    with closing(listen("nothing")) as session:
        session.execute("BEGIN")
        session.execute("SELECT 1 FROM ledger_saga WHERE id = %s FOR UPDATE", [saga])
        yield


@pytest.mark.parametrize(
    ("body", "told"),
    [(NO_SUCH_TOOL, "unknown-tool"), (WRONG_ARGS, "invalid-args")],
    ids=["no such tool", "wrong args"],
)
def test_a_refusal_that_needs_no_lock_waits_for_none(
    agent: Caller, saga: str, body: dict[str, Any], told: str
) -> None:
    with held(saga):
        began = time.monotonic()
        answer = agent.post(f"sagas/{saga}/steps", body)
        assert time.monotonic() - began < 2
    assert answer.status_code == 422
    assert problem_type(answer) == told


@pytest.mark.parametrize("body", [None, NO_SUCH_TOOL], ids=["in order", "no such tool"])
def test_another_agent_neither_waits_for_the_lock_nor_gets_it(
    agent: Caller, other_agent: Caller, saga: str, body: dict[str, Any] | None
) -> None:
    other_agent.open()  # known to this process from now on
    with held(saga):
        began = time.monotonic()
        answer = (
            other_agent.post(f"sagas/{saga}/steps", body) if body else other_agent.propose(saga)
        )
        assert time.monotonic() - began < 2
    assert answer.status_code == (422 if body else 404)
