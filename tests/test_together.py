"""Proposals of one moment share a transaction, and nobody is to notice."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest

from ledger.models import EffectClaim, Entry, Step, Token
from ledger.models.fields import ClockTimestamp
from ledger.services import together, tokens
from tests.apicast import Caller, problem_type, tools_text
from tests.registered import registered
from tests.togethercast import assert_whole, at_once, leading, patient, plain, threads, transactions

__all__ = ["patient"]
pytestmark = [pytest.mark.usefixtures("tools"), pytest.mark.django_db(transaction=True)]


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
    with leading():
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
def test_a_token_that_is_good_for_less_meanwhile_writes_no_more(
    agent: Caller, other_agent: Caller
) -> None:
    sagas, asks = plain(agent, 2)
    theirs, more = plain(other_agent, 1)
    assert other_agent.propose(other_agent.open("seen")).status_code == 202
    assert other_agent.token is not None
    mine = Token.objects.filter(digest=tokens.digest(other_agent.token))
    mine.update(tools=["notes.once"])
    answers = at_once(*asks, *more)
    assert [answer.status_code for answer in answers] == [202, 202, 403]
    assert not Step.objects.filter(saga_id=theirs[0]).exists()
    assert transactions(sagas) == 1


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
