"""Of proposals that share a transaction none holds up another, nor is told what was another's."""

from __future__ import annotations

import threading
import time
from contextlib import ExitStack, closing
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from ledger import faultpoints, storage
from ledger.listening import listen
from ledger.models import Step
from ledger.services import together
from ledger.tools.installed import registry
from tests.apicast import Caller, problem_type, tools_text
from tests.registered import registered
from tests.running import eventually
from tests.test_api_held import held
from tests.test_engine_lost_commit import backend_killed_at_commit
from tests.togethercast import (
    assert_whole,
    at_once,
    gathering,
    leading,
    no_connection_left,
    patient,
    plain,
    release,
    threads,
    transactions,
)

__all__ = ["patient"]
pytestmark = [pytest.mark.usefixtures("tools"), pytest.mark.django_db(transaction=True)]


@pytest.mark.usefixtures("patient")
@pytest.mark.parametrize("leads", [True, False])
def test_a_saga_that_is_locked_holds_up_nobody_else(agent: Caller, leads: bool) -> None:
    sagas, asks = plain(agent, 3)
    slow = sagas[0] if leads else sagas[1]
    quick = [saga for saga in sagas if saga != slow]
    with held(slow), threads([lambda: at_once(*asks)]) as (answers,):
        theirs = Step.objects.filter(saga_id__in=quick)
        eventually(lambda: theirs.count() == 2, "the others are written", 20)
        assert transactions(quick) == 1
        time.sleep(0.2)
        assert not answers.done()
        release()
    assert [answer.status_code for answer in answers.result(30)] == [202] * 3
    assert_whole(sagas)


@pytest.mark.usefixtures("patient")
def test_what_is_long_to_check_holds_up_nobody_else(
    agent: Caller, settings: Any, tmp_path: Path, unused_url: str
) -> None:
    """To tell that no two of many objects are alike takes seconds."""
    listed = '{ id = { type = "string" }, rows = { type = "array", uniqueItems = true } }'
    given = '{ id = { type = "string" }, amount = { type = "number" } }'
    rows = [{"row": number} for number in range(3000)]
    with registered(settings, tmp_path, tools_text(unused_url).replace(given, listed)):
        sagas, asks = plain(agent, 3)
        slow = agent.open("slow")
        with ExitStack() as stack:
            with leading():
                ask = partial(agent.propose, slow, args={"id": "a", "rows": rows})
                (late,) = stack.enter_context(threads([ask]))
                eventually(lambda: len(gathering()._waiting) == 1, "it is being checked", 20)
                coming = stack.enter_context(threads(asks, in_order=True))
            assert [one.result(30).status_code for one in coming] == [202] * 3
            assert not late.done()
            assert late.result(120).status_code == 202
    assert transactions(sagas) == 1
    assert_whole([*sagas, slow])


@pytest.mark.usefixtures("patient")
def test_what_is_large_goes_alone_and_at_once(agent: Caller) -> None:
    with leading():
        assert (
            agent.propose(agent.open(), args={"id": "x" * together.LARGEST_ARGS}).status_code == 202
        )


@pytest.mark.usefixtures("patient")
def test_a_tools_version_that_another_is_writing_holds_up_for_a_moment_only(agent: Caller) -> None:
    sagas, asks = plain(agent, 3)
    first = agent.open("first")
    tool = registry().get("notes.once")
    with closing(listen("nothing")) as session:
        session.execute("BEGIN")
        session.execute(
            "INSERT INTO ledger_toolversion (digest, key, version, definition, first_seen_at) "
            "VALUES (%s, %s, %s, %s::jsonb, clock_timestamp())",
            [tool.digest, tool.key, tool.version, tool.definition_text],
        )
        once = lambda: agent.propose(first, tool="notes.once")  # noqa: E731
        with threads([lambda: at_once(*asks, once)]) as (answers,):
            theirs = Step.objects.filter(saga_id__in=sagas)
            eventually(lambda: theirs.count() == 3, "the others are written", 4)
            session.execute("COMMIT")
    assert [one.status_code for one in answers.result(20)] == [202] * 4
    assert_whole([*sagas, first])


@pytest.mark.usefixtures("patient")
def test_a_connection_that_is_not_to_be_had_is_waited_for_once(agent: Caller) -> None:
    sagas, asks = plain(agent, 3)
    assert agent.propose(agent.open("seen")).status_code == 202
    with no_connection_left(within_s=0.5) as pool:
        before = pool.get_stats()["requests_errors"]
        answers = at_once(*asks)
        assert pool.get_stats()["requests_errors"] == before + 1
    assert [answer.status_code for answer in answers] == [503] * 3
    assert not Step.objects.filter(saga_id__in=sagas).exists()


def test_who_waits_for_a_lock_holds_up_the_others_for_a_moment_only(agent: Caller) -> None:
    sagas, (slow, *quick) = plain(agent, 4)
    with held(sagas[0]), threads([slow]) as (stuck,):
        eventually(lambda: gathering()._leader is not None, "it leads")
        with threads(quick) as coming:
            assert [one.result(5).status_code for one in coming] == [202] * 3
        assert not stuck.done()
        release()
        assert stuck.result(30).status_code == 202
    assert_whole(sagas)


@pytest.mark.usefixtures("patient")
@pytest.mark.parametrize("before", [True, False], ids=["lost", "committed"])
def test_a_commit_whose_answer_is_lost_is_read_back_by_each(
    agent: Caller, monkeypatch: pytest.MonkeyPatch, before: bool
) -> None:
    sagas, asks = plain(agent, 4)
    known = agent.open("known")
    assert agent.propose(known).status_code == 202
    hits: list[str] = []

    def reached(point: str, about: str = "") -> None:
        if point == "P1" and not hits:
            hits.append(threading.current_thread().name)
            backend_killed_at_commit(before=before).__enter__()

    monkeypatch.setattr(faultpoints, "reached", reached)
    again, *answers = at_once(lambda: agent.propose(known), *asks)
    assert hits
    assert [answer.status_code for answer in answers] == [202] * 4
    assert problem_type(again) == "step-in-flight"  # it was not among those that were written
    assert transactions(sagas) == (4 if before else 1)
    assert_whole(sagas)


@pytest.mark.usefixtures("patient")
def test_what_goes_wrong_with_one_is_no_others(agent: Caller) -> None:
    """One whose row the database refuses, for whatever reason."""
    sagas, asks = plain(agent, 3)
    storage.execute(
        "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS "
        "$$ BEGIN RAISE EXCEPTION 'not this one'; END $$"
    )
    storage.execute(
        "CREATE TRIGGER refuse BEFORE INSERT ON ledger_step FOR EACH ROW "
        f"WHEN (NEW.saga_id = '{sagas[1]}') EXECUTE FUNCTION refuse()"
    )
    try:
        answers = at_once(*asks)
    finally:
        storage.execute("DROP TRIGGER refuse ON ledger_step")
        storage.execute("DROP FUNCTION refuse()")
    assert [answer.status_code for answer in answers] == [202, 500, 202]
    assert not Step.objects.filter(saga_id=sagas[1]).exists()
    assert_whole([sagas[0], sagas[2]])
