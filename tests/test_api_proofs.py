"""A proposal's token is looked up in the transaction that it authorises, and before all else."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from uuid import UUID, uuid4

import pytest
from django.db import OperationalError, connection, transaction

from ledger.models import Entry, Saga, Step, Token
from ledger.models.fields import ClockTimestamp
from ledger.services import tokens
from ledger.services.proofs import Proof
from tests.apicast import Answer, Caller, problem_type
from tests.running import eventually
from tests.test_engine_lost_commit import backend_killed_at_commit

pytestmark = [pytest.mark.usefixtures("tools"), pytest.mark.django_db(transaction=True)]
STEP = {"step_id": "s2", "tool": "notes.add", "args": {"id": "b"}}


@pytest.fixture
def saga(agent: Caller) -> str:
    """A saga in which this process has seen the agent's token with a proposal."""
    opened = agent.open()
    assert agent.propose(opened).status_code == 202
    return opened


def revoke(caller: Caller) -> None:
    assert caller.token is not None
    Token.objects.filter(digest=tokens.digest(caller.token)).update(revoked_at=ClockTimestamp())


@pytest.mark.parametrize(
    ("path", "body", "headers"),
    [
        pytest.param("sagas/{saga}/steps", STEP, {}, id="a new step"),
        pytest.param("sagas/{saga}/steps", STEP, {"Prefer": "wait=1"}, id="waited for"),
        pytest.param("sagas/{saga}/steps", STEP | {"step_id": "s1"}, {}, id="the step of before"),
        pytest.param("sagas/no-uuid/steps", STEP, {}, id="no saga's address"),
        pytest.param(f"sagas/{uuid4()}/steps", STEP, {}, id="no saga"),
        pytest.param("sagas/{saga}/steps", b"{", {}, id="no JSON"),
        pytest.param("sagas/{saga}/steps", {"step_id": 1}, {}, id="another shape"),
        pytest.param("sagas/{saga}/steps", STEP | {"tool": "no.such"}, {}, id="no tool"),
        pytest.param("sagas/{saga}/steps", STEP | {"args": {}}, {}, id="other args"),
        pytest.param("sagas/{saga}/steps", STEP, {"Idempotency_Key": "x"}, id="two names"),
    ],
)
def test_who_was_known_and_may_ask_no_more_is_told_that_and_nothing_else(
    agent: Caller, saga: str, path: str, body: Any, headers: dict[str, str]
) -> None:
    before = Entry.objects.count()
    revoke(agent)
    answer = agent.post(path.format(saga=saga), body, **headers)
    assert (answer.status_code, problem_type(answer)) == (401, "unauthorized")
    assert "invalid_token" in answer.headers["WWW-Authenticate"]
    assert (Step.objects.count(), Entry.objects.count()) == (1, before)


def test_a_token_that_nobody_has_seen_is_looked_up_first(nobody: Caller, saga: str) -> None:
    for token in ("saga_agent_unknown", "saga_operator_unknown", "elsewhere"):
        answer = Caller(token).post(f"sagas/{saga}/steps", b"{")
        assert (answer.status_code, problem_type(answer)) == (401, "unauthorized")
    assert nobody.post(f"sagas/{saga}/steps", STEP).status_code == 401


def test_what_a_token_is_good_for_is_seen_at_once(agent: Caller, saga: str) -> None:
    assert agent.token is not None
    mine = Token.objects.filter(digest=tokens.digest(agent.token))
    mine.update(tools=["other.*"])
    answer = agent.propose(saga, "s2", args={"id": "b"})
    assert (answer.status_code, problem_type(answer)) == (403, "forbidden")
    assert Step.objects.count() == 1
    mine.update(tools=["notes.*"])
    assert agent.propose(saga, "s2", args={"id": "b"}).status_code == 202
    assert Step.objects.count() == 2


def test_a_person_is_told_that_only_agents_propose_each_time(oncall: Caller, saga: str) -> None:
    for _ in range(2):
        answer = oncall.propose(saga, "s2")
        assert (answer.status_code, problem_type(answer)) == (403, "forbidden")


def test_a_saga_of_another_agent_stays_unseen(other_agent: Caller, saga: str) -> None:
    for _ in range(2):
        assert other_agent.propose(saga, "s2").status_code == 404


@pytest.mark.parametrize("presumed", [[], ["other.*"]], ids=["as presumed", "otherwise"])
def test_what_is_revoked_while_a_proposal_waits_for_its_saga_is_refused(
    agent: Caller, saga: str, presumed: list[str]
) -> None:
    """Also where all had to begin anew, because the token was good for something else."""
    mine = Token.objects.filter(digest=tokens.digest(str(agent.token)))
    mine.update(tools=presumed)
    agent.propose(saga, "s1")
    mine.update(tools=[])
    answers: list[Answer] = []

    def propose() -> None:
        try:
            answers.append(agent.propose(saga, "s2", args={"id": "b"}))
        finally:
            connection.close()

    caller = threading.Thread(target=propose)
    with transaction.atomic():
        Saga.objects.select_for_update().get(pk=UUID(saga))
        caller.start()
        eventually(someone_waits_for_a_row, "the proposal waits for the saga")
        revoke(agent)
    caller.join(30)
    (answer,) = answers
    assert (answer.status_code, problem_type(answer)) == (401, "unauthorized")
    assert Step.objects.count() == 1


@contextmanager
def good_for_less_once_a_step_is_stored() -> Iterator[None]:
    """The agent's tokens are changed by the very transaction that stores its next step."""
    with connection.cursor() as cursor:
        cursor.execute(
            "CREATE FUNCTION test_narrow() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN "
            "UPDATE ledger_token SET tools = '{notes.*}'; RETURN NULL; END $$"
        )
        cursor.execute(
            "CREATE TRIGGER test_narrow AFTER INSERT ON ledger_step "
            "FOR EACH ROW EXECUTE FUNCTION test_narrow()"
        )
    try:
        yield
    finally:
        with connection.cursor() as cursor:
            cursor.execute("DROP FUNCTION test_narrow CASCADE")


def test_a_step_whose_commit_was_lost_is_accepted_for_the_token_as_it_is_since(
    agent: Caller, saga: str
) -> None:
    with good_for_less_once_a_step_is_stored(), backend_killed_at_commit(before=False):
        answer = agent.propose(saga, "s2", args={"id": "b"})
    assert (answer.status_code, answer.json()["step_id"]) == (202, "s2")
    assert Step.objects.count() == 2


def test_while_the_ledger_is_away_nobody_is_looked_up(agent: Caller, saga: str) -> None:
    """Each look would wait for a connection as long once more, and hold a web thread."""
    connection.close()
    with pytest.raises(OperationalError), Proof(str(agent.token)):
        raise OperationalError("no connection is to be had")
    assert connection.connection is None


def someone_waits_for_a_row() -> bool:
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' "
            "AND datname = current_database()"
        )
        return bool(cursor.fetchone()[0])
