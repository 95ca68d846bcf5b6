"""Proposals of one moment share a transaction, and nobody is to notice."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest
from django.db import connections
from psycopg_pool import PoolTimeout

from ledger import faultpoints, storage
from ledger.listening import listen
from ledger.models import EffectClaim, Entry, Saga, Step, Token
from ledger.models.fields import ClockTimestamp
from ledger.services import together, tokens
from ledger.services.proposals import Proposal
from ledger.services.verifying import verify
from ledger.tools.installed import registry
from tests.apicast import Answer, Caller, problem_type, tools_text
from tests.registered import registered
from tests.running import eventually
from tests.test_api_held import held
from tests.test_engine_lost_commit import backend_killed_at_commit

pytestmark = [pytest.mark.usefixtures("tools"), pytest.mark.django_db(transaction=True)]
Asks = Callable[[], Answer]


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who waits to be led waits for it, however busy the machine is."""
    monkeypatch.setattr(together._gathering, "_patience_s", 60.0)


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
    ready = sum(one.is_ready for one in together._gathering._waiting)
    return ready + sum(one.done() for one in coming)


def at_once(*asks: Asks) -> list[Answer]:
    """What these are answered when they come, in this order, while another is at it."""
    with ExitStack() as stack:
        with together._gathering.turn(None, key=None):  # type: ignore[arg-type]
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


@pytest.mark.usefixtures("patient")
def test_they_are_written_together_and_each_is_its_own_agents(
    agent: Caller, other_agent: Caller
) -> None:
    mine, asks = plain(agent, 3)
    others, more = plain(other_agent, 3)
    answers = at_once(*asks, *more)
    assert [answer.status_code for answer in answers] == [202] * 6
    assert transactions([*mine, *others]) == 1
    assert [answer.json()["saga_id"] for answer in answers] == [*mine, *others]
    actors = {
        saga: Entry.objects.get(saga_id=saga, kind="step.proposed").actor
        for saga in [*mine, *others]
    }
    assert {actors[saga] for saga in mine} == {"agent:refunder"}
    assert {actors[saga] for saga in others} == {"agent:stranger"}
    assert_whole([*mine, *others])


@pytest.mark.usefixtures("patient")
def test_more_than_go_together_go_after_them(agent: Caller) -> None:
    sagas, asks = plain(agent, together.MOST + 3)
    assert {answer.status_code for answer in at_once(*asks)} == {202}
    assert transactions(sagas) == 2
    assert_whole(sagas)


@pytest.mark.usefixtures("patient")
def test_steps_of_one_saga_follow_each_other(agent: Caller) -> None:
    saga = agent.open()
    asks = [
        lambda name=name: agent.propose(saga, name, args={"id": name}) for name in ("a", "b", "c")
    ]
    answers = at_once(*asks)
    assert [answer.status_code for answer in answers] == [202] * 3
    assert [answer.json()["position"] for answer in answers] == [1, 2, 3]
    assert [answer.json()["state"] for answer in answers] == ["queued", "waiting", "waiting"]
    assert_whole([saga], 3)


ODD: list[tuple[str, dict[str, Any], int, str]] = [
    ("no such tool", {"tool": "no.such"}, 422, "unknown-tool"),
    ("wrong args", {"args": {}}, 422, "invalid-args"),
    ("asks people", {"tool": "notes.grave"}, 202, ""),
    ("the same again", {"step_id": "first", "args": {"id": "first"}}, 409, "step-in-flight"),
    ("the same, reworded", {"step_id": "first", "args": {"id": "z"}}, 422, "step-mismatch"),
    ("a twin", {"args": {"id": "first"}}, 202, ""),
    (
        "an effect that is held",
        {"tool": "notes.once", "args": {"id": "held"}},
        409,
        "step-in-flight",
    ),
]


@pytest.mark.usefixtures("patient")
@pytest.mark.parametrize(
    ("more", "status", "problem"), [o[1:] for o in ODD], ids=[o[0] for o in ODD]
)
def test_what_is_not_plain_is_answered_as_alone_and_holds_up_nobody(
    agent: Caller, more: dict[str, Any], status: int, problem: str
) -> None:
    holder = agent.open("holder")
    assert agent.propose(holder, tool="notes.once", args={"id": "held"}).status_code == 202
    odd = agent.open("odd")
    assert agent.propose(odd, "first", args={"id": "first"}).status_code == 202
    sagas, asks = plain(agent, 3)
    step = {"step_id": "odd", "args": {"id": "odd"}} | more
    first, answer, *rest = at_once(asks[0], lambda: agent.propose(odd, **step), *asks[1:])
    assert [one.status_code for one in (first, *rest)] == [202] * 3
    assert transactions(sagas) == 1
    assert answer.status_code == status, answer.content
    assert not problem or problem_type(answer) == problem
    if step["step_id"] == "odd" and more.get("args") == {"id": "first"}:
        assert answer.json()["state"] == "awaiting_approval"  # it looks like the first
    assert_whole(sagas)


@pytest.mark.usefixtures("patient")
def test_what_needs_more_reads_waits_for_nobody(agent: Caller) -> None:
    other = {"tool": "notes.once", "args": {"id": "q"}}
    with together._gathering.turn(None, key=None):  # type: ignore[arg-type]
        assert agent.propose(agent.open(), alternatives=[other]).status_code == 202


@pytest.mark.usefixtures("patient")
def test_a_saga_that_is_not_ours_or_not_there_is_told_as_alone(
    agent: Caller, other_agent: Caller
) -> None:
    sagas, asks = plain(agent, 2)
    theirs = other_agent.open("theirs")
    answers = at_once(
        asks[0],
        lambda: agent.propose(theirs),
        lambda: agent.propose(str(uuid4())),
        asks[1],
    )
    assert [answer.status_code for answer in answers] == [202, 404, 404, 202]
    assert not Step.objects.filter(saga_id=theirs).exists()
    assert transactions(sagas) == 1


@pytest.mark.usefixtures("patient")
def test_a_saga_that_has_ended_takes_no_step(agent: Caller) -> None:
    sagas, asks = plain(agent, 2)
    ended = agent.open("ended")
    assert agent.post(f"sagas/{ended}/complete").status_code == 200
    answers = at_once(asks[0], lambda: agent.propose(ended), asks[1])
    assert [answer.status_code for answer in answers] == [202, 409, 202]
    assert not Step.objects.filter(saga_id=ended).exists()
    assert_whole(sagas)


@pytest.mark.usefixtures("patient")
@pytest.mark.parametrize("leads", [True, False])
def test_a_token_that_was_revoked_meanwhile_writes_nothing(
    agent: Caller, other_agent: Caller, leads: bool
) -> None:
    sagas, asks = plain(agent, 2)
    theirs, more = plain(other_agent, 1)
    assert other_agent.propose(other_agent.open("seen")).status_code == 202
    assert other_agent.token is not None
    mine = Token.objects.filter(digest=tokens.digest(other_agent.token))
    mine.update(revoked_at=ClockTimestamp())
    answers = at_once(*(more + asks if leads else asks + more))
    assert sorted(answer.status_code for answer in answers) == [202, 202, 401]
    assert not Step.objects.filter(saga_id=theirs[0]).exists()
    assert transactions(sagas) == 1
    assert_whole(sagas)


@pytest.mark.usefixtures("patient")
@pytest.mark.parametrize("other", ["7", "\u200b7"], ids=["the same", "looks alike"])
def test_two_that_want_what_looks_like_one_effect_see_each_other(agent: Caller, other: str) -> None:
    sagas, asks = plain(agent, 2)
    first, second = agent.open("first"), agent.open("second")
    answers = at_once(
        asks[0],
        lambda: agent.propose(first, tool="notes.once", args={"id": "7"}),
        lambda: agent.propose(second, tool="notes.once", args={"id": other}),
        asks[1],
    )
    told = [(answer.status_code, answer.json().get("state")) for answer in answers]
    if other == "7":
        assert [status for status, _ in told] == [202, 202, 409, 202]
        assert EffectClaim.objects.count() == 1
        assert not Step.objects.filter(saga_id=second).exists()
    else:
        assert told[2] == (202, "awaiting_approval")
        assert Step.objects.get(saga_id=second).duplicate_of == Step.objects.get(saga_id=first)
    assert transactions([*sagas, first]) == 1
    assert_whole([*sagas, first])


@pytest.mark.usefixtures("patient")
def test_effects_that_nobody_can_see_look_alike_too(
    agent: Caller, settings: Any, tmp_path: Path, unused_url: str
) -> None:
    text = tools_text(unused_url).replace('"once:{args.id}"', '"{args.id}"')
    with registered(settings, tmp_path, text):
        _, (ask,) = plain(agent, 1)
        sagas = [agent.open("a"), agent.open("b")]
        both = [
            lambda saga=saga, key=key: agent.propose(saga, tool="notes.once", args={"id": key})
            for saga, key in zip(sagas, ["\u200b", "\u2060"], strict=True)
        ]
        _, first, second = at_once(ask, *both)
    assert (first.json()["state"], second.json()["state"]) == ("queued", "awaiting_approval")


@pytest.mark.usefixtures("patient")
def test_effects_are_claimed_together(agent: Caller) -> None:
    sagas = [agent.open(f"task-{number}") for number in range(3)]
    asks = [
        lambda saga=saga: agent.propose(saga, tool="notes.once", args={"id": saga})
        for saga in sagas
    ]
    assert [answer.status_code for answer in at_once(*asks)] == [202] * 3
    assert transactions(sagas) == 1
    held_by = {
        claim.step.saga_id: claim.key for claim in EffectClaim.objects.select_related("step")
    }
    assert held_by == {UUID(saga): f"once:{saga}" for saga in sagas}


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
@pytest.mark.parametrize("args", [{"id": "slow"}, {"id": "x" * together.LARGEST_ARGS}])
def test_what_is_long_to_check_holds_up_nobody_else(
    agent: Caller, monkeypatch: pytest.MonkeyPatch, args: dict[str, str]
) -> None:
    sagas, asks = plain(agent, 3)
    slow, checked = agent.open("slow"), threading.Event()
    real = together.prepare

    def prepare(saga_id: UUID, proposal: Proposal, **more: Any) -> Any:
        if proposal.args["id"] == "slow":
            assert checked.wait(20)
        return real(saga_id, proposal, **more)

    monkeypatch.setattr(together, "prepare", prepare)
    with together._gathering.turn(None, key=None):  # type: ignore[arg-type]
        stack = ExitStack()
        (late,) = stack.enter_context(threads([lambda: agent.propose(slow, args=args)]))
        if args["id"] != "slow":
            assert late.result(20).status_code == 202  # alone, and at once
        coming = stack.enter_context(threads(asks))
        eventually(lambda: _have_come(coming) == 3, "they wait", 20)
    with stack:
        assert [one.result(20).status_code for one in coming] == [202] * 3
        checked.set()
        assert late.result(20).status_code == 202
    assert transactions(sagas) == 1
    assert_whole([*sagas, slow])


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
def test_a_connection_that_is_not_to_be_had_is_waited_for_once(
    agent: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    sagas, asks = plain(agent, 3)
    assert agent.propose(agent.open("seen")).status_code == 202
    tried: list[float] = []

    def getconn(*_: Any, **__: Any) -> Any:
        tried.append(time.monotonic())
        raise PoolTimeout("couldn't get a connection after 10.00 sec")

    with monkeypatch.context() as patch:
        patch.setattr("psycopg_pool.ConnectionPool.getconn", getconn)
        answers = at_once(*asks)
    assert [answer.status_code for answer in answers] == [503] * 3
    assert len(tried) == 1
    assert not Step.objects.filter(saga_id__in=sagas).exists()


def release() -> None:
    """End every transaction that only holds a lock."""
    storage.rows(
        "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE datname = "
        "current_database() AND state = 'idle in transaction' AND query LIKE %s",
        ["SELECT 1 FROM ledger_saga%"],
    )


def test_who_waits_for_a_lock_holds_up_the_others_for_a_moment_only(agent: Caller) -> None:
    sagas, (slow, *quick) = plain(agent, 4)
    with held(sagas[0]), threads([slow]) as (stuck,):
        eventually(lambda: together._gathering._leader is not None, "it leads")
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
def test_what_goes_wrong_with_one_is_no_others(
    agent: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
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


def test_a_storm_of_the_same_and_of_others(agent: Caller) -> None:
    """Four sagas, six steps each, every step by three threads at once."""
    sagas = [agent.open(f"task-{number}") for number in range(4)]
    names = [f"s{number}" for number in range(6)]
    asks = [
        lambda saga=saga, name=name: agent.propose(saga, name, args={"id": f"{saga}{name}"})
        for name in names
        for saga in sagas
        for _ in range(3)
    ]
    with threads(asks) as coming:
        answers = [one.result(60) for one in coming]
    accepted = [answer.json()["id"] for answer in answers if answer.status_code == 202]
    assert len(accepted) == len(set(accepted)) == 24
    assert {problem_type(one) for one in answers if one.status_code == 409} == {"step-in-flight"}
    assert len(answers) == 72
    assert_whole(sagas, 6)
