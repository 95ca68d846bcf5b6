"""What counts as the same step, over REST: keys that collide, bodies that differ, lost memory."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ledger.models import Entry, Step
from tests.apicast import Caller, a_shift, problem_type, tools_at
from tests.sockets import SocketTarget, says_json, target

NOTE = {"id": "a"}
WITH_EFFECT = {"tool": "notes.once"}


@pytest.fixture
def notes(settings: Any, tmp_path: Path) -> Iterator[SocketTarget]:
    """The tools of apicast.py at a target that answers, and counts what it was asked."""
    with (
        target(says_json("200 OK", b'{"id":"note_1"}')) as running,
        tools_at(settings, tmp_path, running.url),
    ):
        yield running


def facts() -> list[tuple[Any, ...]]:
    """Everything recorded so far."""
    return list(Entry.objects.order_by("saga_id", "seq").values_list("saga_id", "seq", "hash"))


def assert_told_apart(answer: Any, type_: str, first: dict[str, Any]) -> None:
    """422 with a type of its own, naming the first step and both digests."""
    assert (answer.status_code, problem_type(answer)) == (422, type_), answer.content
    assert "Idempotent-Replayed" not in answer.headers
    problem = answer.json()
    assert problem["step"] == first["id"]
    assert problem["recorded"] == {"tool": first["tool"], "args_digest": first["args_digest"]}


@pytest.mark.usefixtures("tools")
class TestBeforeAnyWorker:
    def test_one_name_of_two_agents_is_two_steps(self, agent: Caller, other_agent: Caller) -> None:
        """Case C79: a key's scope is (agent, task, step). Nobody can touch another's by a name."""
        mine = agent.propose(agent.open("t"), "s1").json()
        before = facts()
        saga = other_agent.open("t")
        theirs = other_agent.propose(saga, "s1", args={"id": "b"})
        assert theirs.status_code == 202
        assert theirs.json()["id"] != mine["id"]
        assert theirs.json()["idempotency_key"] != mine["idempotency_key"]
        assert [fact for fact in facts() if fact[0] != Step.objects.latest("id").saga_id] == before
        assert agent.get(f"steps/{mine['id']}").json() == mine

    def test_another_agents_saga_takes_no_step_and_does_not_even_exist(
        self, agent: Caller, other_agent: Caller
    ) -> None:
        """Case C79: a mismatch of the owner is refused, and the first is untouched."""
        saga = agent.open("t")
        agent.propose(saga, "s1")
        before = facts()
        for args in (NOTE, {"id": "b"}):
            answer = other_agent.propose(saga, "s1", args=args)
            assert (answer.status_code, problem_type(answer)) == (404, "not-found")
        assert facts() == before

    def test_the_same_name_in_another_saga_of_ones_own_is_another_step(self, agent: Caller) -> None:
        """Case C79: and with it another key at the target."""
        one = agent.propose(agent.open("one"), "s1").json()
        two = agent.propose(agent.open("two"), "s1").json()
        assert one["args_digest"] == two["args_digest"]
        assert one["idempotency_key"] != two["idempotency_key"]

    @pytest.mark.parametrize("prefer", ["wait=1", "respond-async", "respond-async, wait=1"])
    def test_another_body_in_flight_is_422_whatever_is_preferred(
        self, agent: Caller, prefer: str
    ) -> None:
        """Cases C80, H1: not even a preference for waiting turns it into the first's answer."""
        saga = agent.open()
        first = agent.propose(saga).json()
        before = facts()
        answer = agent.propose(saga, args={"id": "b"}, Prefer=prefer)
        assert_told_apart(answer, "step-mismatch", first)
        assert answer.json()["differing_paths"] == ["/id"]
        assert facts() == before

    def test_another_body_is_422_while_a_person_is_asked(self, agent: Caller) -> None:
        """Cases C80, H1: the request that people are reading is not replaced under their eyes."""
        saga = agent.open()
        first = agent.propose(saga, tool="notes.grave").json()
        answer = agent.propose(saga, tool="notes.grave", args={"id": "b"})
        assert_told_apart(answer, "step-mismatch", first)
        assert agent.get(f"steps/{first['id']}").json() == first

    def test_another_body_for_a_claimed_effect_is_422(
        self, agent: Caller, other_agent: Caller
    ) -> None:
        """Cases C80, H1: also when the first step is in another saga of another agent."""
        first = agent.propose(agent.open(), **WITH_EFFECT).json()
        differs = {"args": NOTE | {"amount": 2}, **WITH_EFFECT}
        answer = other_agent.propose(other_agent.open(), "other", **differs)
        assert_told_apart(answer, "effect-claimed", first)
        assert answer.json()["effect_of"] == first["id"]

    def test_another_tool_under_the_same_name_is_422(self, agent: Caller) -> None:
        """Case C100: the tool is part of the identity, though name and args are the same."""
        saga = agent.open()
        first = agent.propose(saga).json()
        before = facts()
        answer = agent.propose(saga, **WITH_EFFECT)
        assert_told_apart(answer, "step-mismatch", first)
        assert answer.json()["submitted"]["tool"] == "notes.once"
        assert answer.json()["submitted"]["args_digest"] == first["args_digest"]
        assert facts() == before

    def test_a_refused_submit_uses_up_no_name_and_no_effect(self, agent: Caller) -> None:
        """Cases C82, H3: checked first and recorded second, so the corrected retry is accepted."""
        saga = agent.open()
        for args in ({"id": "a", "amount": "2"}, {}, {"id": "a", "amont": 2}):
            wrong = agent.propose(saga, args=args, **WITH_EFFECT)
            assert (wrong.status_code, problem_type(wrong)) == (422, "invalid-args")
        corrected = agent.propose(saga, args={"id": "a", "amount": 2}, **WITH_EFFECT)
        assert corrected.status_code == 202
        assert "Idempotent-Replayed" not in corrected.headers

    def test_an_old_error_is_never_given_to_a_new_body_and_never_the_other_way(
        self, agent: Caller
    ) -> None:
        """Case C82: replayed before it was checked, the wrong body would have had an answer."""
        saga = agent.open()
        assert agent.propose(saga).status_code == 202
        wrong = agent.propose(saga, args={"id": 7})
        assert (wrong.status_code, problem_type(wrong)) == (422, "invalid-args")
        assert problem_type(agent.propose(saga)) == "step-in-flight"

    @pytest.mark.parametrize("empty", ["", "  ", "\u00a0"])
    def test_an_empty_effect_key_is_an_error_and_not_no_key(
        self, agent: Caller, empty: str
    ) -> None:
        """Case C101: skipped, it would have switched the deduplication off without a word."""
        answer = agent.propose(agent.open(), args={"id": empty}, **WITH_EFFECT)
        assert (answer.status_code, problem_type(answer)) == (422, "invalid-args")
        assert answer.json()["errors"][0]["pointer"] == "/args/id"
        assert not Step.objects.exists()

    @pytest.mark.parametrize(
        "alphabet", ["0123456789abcdef", "mw", "\u6f22\u5b57\u4eee", "\ufdfa\ufdfb"]
    )
    def test_an_effect_key_is_never_longer_than_an_index_can_hold(
        self, agent: Caller, alphabet: str
    ) -> None:
        """Nor is what it looks like, which may be longer. Accepted, no claim could ever end it."""
        letters = "".join(random.Random(1).choices(alphabet, k=1000))
        longest = letters.encode()[: 1000 - len("once:")].decode(errors="ignore")
        assert agent.propose(agent.open(), args={"id": longest}, **WITH_EFFECT).status_code == 202
        answer = agent.propose(
            agent.open("more"), args={"id": longest + alphabet[0] * 5}, **WITH_EFFECT
        )
        assert (answer.status_code, problem_type(answer)) == (422, "invalid-args")
        assert "may have 1,000" in answer.json()["detail"]
        assert Step.objects.count() == 1

    def test_args_as_a_json_string_are_refused(self, agent: Caller) -> None:
        """Case A9: a string that holds an object is no object; nothing is parsed twice."""
        answer = agent.propose(agent.open(), args=json.dumps(NOTE))
        assert (answer.status_code, problem_type(answer)) == (422, "invalid-args")
        assert not Step.objects.exists()

    def test_a_new_name_for_each_turn_does_not_make_a_second_effect(self, agent: Caller) -> None:
        """Cases C98, H8: tool_call_id is new each turn. An effect key answers with the first;
        without one a person is asked."""
        saga = agent.open()
        first = agent.propose(saga, "call_Zk3", **WITH_EFFECT).json()
        again = agent.propose(saga, "call_9fQ", **WITH_EFFECT)
        assert (again.status_code, again.json()["step"]["id"]) == (409, first["id"])
        assert again.json()["step"]["effect_of"] == first["id"]
        agent.propose(saga, "call_a", args={"id": "b"})
        suspected = agent.propose(saga, "call_b", args={"id": "b"})
        assert suspected.json()["state"] == "awaiting_approval"

    def test_a_regenerated_memo_is_refused_with_the_original_and_the_difference(
        self, agent: Caller
    ) -> None:
        """Case C98: the agent learns which step it meant, and what it said otherwise this time."""
        saga = agent.open()
        first = agent.propose(saga, args=NOTE | {"amount": 1}, **WITH_EFFECT).json()
        for name in ("s1", "another"):
            answer = agent.propose(saga, name, args=NOTE | {"amount": 2}, **WITH_EFFECT)
            assert answer.status_code == 422
            assert answer.json()["step"] == first["id"]
            assert answer.json()["differing_paths"] == ["/amount"]
        assert agent.get(f"steps/{answer.json()['step']}").json() == first


@pytest.mark.django_db(transaction=True)
class TestCommitted:
    def test_a_refused_opening_uses_up_no_task(self, agent: Caller, notes: SocketTarget) -> None:
        """Cases C82, H3: a task refused for its second step is free, and so is the first step."""
        good = {"step_id": "s1", "tool": "notes.once", "args": NOTE}
        wrong = good | {"step_id": "s2", "args": {"id": 7}}
        body = {"task_id": "t", "name": "n"}
        refused = agent.post("sagas", body | {"steps": [good, wrong]})
        assert (refused.status_code, problem_type(refused)) == (422, "invalid-args")
        corrected = agent.post("sagas", body | {"steps": [good, wrong | {"args": {"id": "b"}}]})
        assert corrected.status_code == 201
        assert [step["state"] for step in corrected.json()["steps"]] == ["queued", "waiting"]

    def test_another_body_is_422_though_an_answer_is_stored(
        self, agent: Caller, other_agent: Caller, settings: Any, notes: SocketTarget
    ) -> None:
        """Cases C80, H1: the hit in the store is compared too, under either of its names."""
        with a_shift(settings):
            first = agent.propose(agent.open("t"), Prefer="wait=20", **WITH_EFFECT).json()
        assert first["state"] == "committed"
        before = facts()
        differs = {"args": NOTE | {"amount": 2}, **WITH_EFFECT}
        same_name = agent.propose(first["saga_id"], Prefer="wait=1", **differs)
        assert_told_apart(same_name, "step-mismatch", first)
        assert facts() == before
        other_name = other_agent.propose(other_agent.open(), "other", **differs)
        assert_told_apart(other_name, "effect-claimed", first)
        assert len(notes.requests) == 1

    def test_the_digest_outlives_the_completion_and_an_identical_retry_still_fits(
        self, agent: Caller, settings: Any, notes: SocketTarget
    ) -> None:
        """Case C81; C95: the replay says that it is one, and the first answer does not."""
        saga = agent.open()
        with a_shift(settings):
            first = agent.propose(saga, Prefer="wait=20")
        assert "Idempotent-Replayed" not in first.headers
        for _ in range(3):
            again = agent.propose(saga)
            assert (again.status_code, again.json()) == (200, first.json())
            assert again.headers["Idempotent-Replayed"] == "true"
        assert len(notes.requests) == 1
