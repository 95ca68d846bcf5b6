"""The table of design section 4: what a submitted step is answered, and how long it may take."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

import pytest
from django.db import connection

from ledger.api import waiting
from ledger.models import Entry, Step
from ledger.states import StepState
from tests.apicast import Caller, a_shift, problem_type, tools_at
from tests.sockets import says_json, target

OK = says_json("200 OK", b'{"id":"note_1"}')


@pytest.mark.usefixtures("tools")
class TestWithoutAWorker:
    def test_a_new_step_is_202_with_its_address(self, agent: Caller) -> None:
        answer = agent.propose(agent.open())
        assert answer.status_code == 202
        step = answer.json()
        assert step["state"] == "queued"
        assert answer.headers["Location"] == f"http://testserver/api/v1/steps/{step['id']}"
        assert int(answer.headers["Retry-After"]) >= 1
        assert "Idempotent-Replayed" not in answer.headers
        assert "Preference-Applied" not in answer.headers

    def test_the_same_step_in_flight_is_409_with_the_whole_step(self, agent: Caller) -> None:
        saga = agent.open()
        first = agent.propose(saga).json()
        answer = agent.propose(saga)
        assert (answer.status_code, problem_type(answer)) == (409, "step-in-flight")
        assert answer.json()["step"] == first
        assert answer.headers["Location"].endswith(first["id"])
        assert answer.headers["Retry-After"] == "1"

    def test_respond_async_makes_the_409_a_202(self, agent: Caller) -> None:
        saga = agent.open()
        first = agent.propose(saga, Prefer="respond-async")
        assert first.headers["Preference-Applied"] == "respond-async"
        answer = agent.propose(saga, Prefer="respond-async")
        assert (answer.status_code, answer.json()) == (202, first.json())
        assert answer.headers["Preference-Applied"] == "respond-async"

    def test_a_wait_that_runs_out_says_that_it_waited(self, agent: Caller) -> None:
        saga = agent.open()
        first = agent.propose(saga, Prefer="wait=1")
        assert first.status_code == 202
        assert first.headers["Preference-Applied"] == "wait=1"
        again = agent.propose(saga, Prefer="wait=1")
        assert (again.status_code, problem_type(again)) == (409, "step-in-flight")
        assert again.headers["Preference-Applied"] == "wait=1"
        both = agent.propose(saga, Prefer="respond-async, wait=1")
        assert both.status_code == 202
        assert both.headers["Preference-Applied"] == "respond-async, wait=1"

    def test_an_unreadable_preference_is_no_preference(self, agent: Caller) -> None:
        saga = agent.open()
        for prefer in ("wait=soon", "wait=-1", "wait", "wait=1.5", "=;,,", "x" * 5000, "wait=٣"):
            answer = agent.propose(saga, Prefer=prefer)
            assert "Preference-Applied" not in answer.headers, prefer

    def test_beyond_the_last_seat_nobody_waits(self, agent: Caller, settings: Any) -> None:
        settings.SAGA_WAITERS = 0
        waiting._room.cache_clear()
        try:
            began = time.monotonic()
            answer = agent.propose(agent.open(), Prefer="wait=30")
        finally:
            waiting._room.cache_clear()
        assert time.monotonic() - began < 5
        assert answer.status_code == 202
        assert "Preference-Applied" not in answer.headers

    def test_other_args_or_another_tool_are_422_and_change_nothing(self, agent: Caller) -> None:
        """Cases C80, C95, C100, H1."""
        saga = agent.open()
        first = agent.propose(saga).json()
        entries = Entry.objects.count()
        for other in ({"args": {"id": "b"}}, {"tool": "notes.once"}):
            answer = agent.propose(saga, **other)
            assert (answer.status_code, problem_type(answer)) == (422, "step-mismatch")
            assert answer.json()["recorded"]["args_digest"] == first["args_digest"]
        assert answer.json()["step"] == first["id"]
        assert Entry.objects.count() == entries

    def test_reordered_keys_and_1_0_are_the_same_step(self, agent: Caller) -> None:
        """Case C86."""
        saga = agent.open()
        body = '{"step_id":"s","tool":"notes.add","args":%s}'
        first = agent.post(f"sagas/{saga}/steps", (body % '{"id":"a","amount":1}').encode())
        assert first.status_code == 202
        for args in ('{"amount":1.0,"id":"a"}', '{"id":"\\u0061","amount":10E-1}'):
            assert problem_type(agent.post(f"sagas/{saga}/steps", (body % args).encode())) == (
                "step-in-flight"
            )

    def test_the_header_may_stand_for_the_step_id(self, agent: Caller) -> None:
        saga = agent.open()
        step = {"tool": "notes.add", "args": {"id": "a"}}
        path = f"sagas/{saga}/steps"
        quoted = agent.post(path, step, Idempotency_Key=r'"a \"b\" c"')
        assert quoted.json()["step_id"] == 'a "b" c'
        bare = agent.post(path, step | {"args": {"id": "b"}}, Idempotency_Key="refund-1")
        assert bare.json()["step_id"] == "refund-1"
        both = agent.post(path, step | {"step_id": "s"}, Idempotency_Key='"t"')
        assert (both.status_code, problem_type(both)) == (422, "invalid-args")
        for bad in ('"open', " ", '""', "x" * 201):
            answer = agent.post(path, step, Idempotency_Key=bad)
            assert answer.status_code in (400, 422), bad

    def test_a_name_that_is_no_ascii_belongs_into_the_body(self, agent: Caller) -> None:
        """Servers hand a header over as Latin-1, or as nothing: it would be another name."""
        saga = agent.open()
        step = {"tool": "notes.add", "args": {"id": "a"}}
        for sent in ("reçu", "reÃ§u", "", '"reçu"'):
            answer = agent.post(f"sagas/{saga}/steps", step, Idempotency_Key=sent)
            assert (answer.status_code, problem_type(answer)) == (422, "invalid-args")
            assert "step_id" in answer.json()["detail"] or sent.startswith('"')
        named = agent.post(f"sagas/{saga}/steps", step | {"step_id": "reçu"})
        assert named.json()["step_id"] == "reçu"

    def test_an_effect_that_is_claimed_is_answered_by_its_first_step(
        self, agent: Caller, other_agent: Caller
    ) -> None:
        first = agent.propose(agent.open(), tool="notes.once").json()
        answer = other_agent.propose(other_agent.open(), "another name", tool="notes.once")
        assert (answer.status_code, problem_type(answer)) == (409, "step-in-flight")
        assert answer.json()["step"] == first | {"effect_of": first["id"]}
        differs = {"id": "a", "amount": 2}
        answer = agent.propose(agent.open("task-2"), tool="notes.once", args=differs)
        assert (answer.status_code, problem_type(answer)) == (422, "effect-claimed")
        assert answer.json()["effect_of"] == first["id"]

    def test_an_ended_saga_takes_no_more_steps(self, agent: Caller) -> None:
        saga = agent.open()
        assert agent.post(f"sagas/{saga}/complete").json()["state"] == "completed"
        assert agent.post(f"sagas/{saga}/complete", {}).status_code == 200
        answer = agent.propose(saga)
        assert (answer.status_code, problem_type(answer)) == (409, "saga-ended")
        assert "takes no more steps: the saga is completed." in answer.json()["detail"]

    def test_a_saga_that_its_agent_has_closed_says_that_and_not_that_it_runs(
        self, agent: Caller
    ) -> None:
        saga = agent.open()
        agent.propose(saga)
        assert agent.post(f"sagas/{saga}/complete").json()["state"] == "running"
        answer = agent.propose(saga, "s2", args={"id": "b"})
        assert (answer.status_code, problem_type(answer)) == (409, "saga-ended")
        assert "takes no more steps: its agent has closed the saga." in answer.json()["detail"]

    def test_the_same_task_is_the_same_saga(self, agent: Caller, other_agent: Caller) -> None:
        """Case C79: a task is its agent's own."""
        saga = agent.open("t")
        again = agent.post("sagas", {"task_id": "t", "name": "Task"})
        assert (again.status_code, again.json()["id"]) == (200, saga)
        assert again.headers["Idempotent-Replayed"] == "true"
        renamed = agent.post("sagas", {"task_id": "t", "name": "Other"})
        assert (renamed.status_code, problem_type(renamed)) == (422, "task-mismatch")
        assert other_agent.open("t") != saga

    def test_a_step_that_waits_for_a_person_says_so(self, agent: Caller) -> None:
        answer = agent.propose(agent.open(), tool="notes.grave")
        assert (answer.status_code, answer.json()["state"]) == (202, "awaiting_approval")
        assert answer.headers["Retry-After"] == "15"


@pytest.mark.django_db(transaction=True)
class TestWithAWorker:
    def test_a_wait_ends_with_the_step(self, agent: Caller, settings: Any, tmp_path: Path) -> None:
        """Case C95: only the replay says that it is one."""
        with target(OK) as notes, tools_at(settings, tmp_path, notes.url), a_shift(settings):
            saga = agent.open()
            answer = agent.propose(saga, Prefer="wait=20")
            assert answer.status_code == 200, answer.content
            step = answer.json()
            assert (step["state"], step["result"]) == ("committed", {"id": "note_1"})
            assert answer.headers["Preference-Applied"] == "wait=20"
            assert "Idempotent-Replayed" not in answer.headers
            replay = agent.propose(saga, Prefer="wait=20")
            assert (replay.status_code, replay.json()) == (200, step)
            assert replay.headers["Idempotent-Replayed"] == "true"
            looked = agent.get(f"steps/{step['id']}", Prefer="wait=20")
            assert (looked.status_code, looked.json()) == (200, step)
            assert len(notes.requests) == 1
        kinds = Entry.objects.order_by("seq").values_list("kind", flat=True)
        assert list(kinds)[-1] == "step.replayed"

    def test_a_replay_for_another_sagas_effect_names_the_first_step(
        self, agent: Caller, other_agent: Caller, settings: Any, tmp_path: Path
    ) -> None:
        with target(OK) as notes, tools_at(settings, tmp_path, notes.url), a_shift(settings):
            first = agent.propose(agent.open(), tool="notes.once", Prefer="wait=20").json()
            second = other_agent.open()
            answer = other_agent.propose(second, tool="notes.once", Prefer="wait=20")
            assert answer.status_code == 200
            assert answer.headers["Idempotent-Replayed"] == "true"
            assert answer.json() == first | {"effect_of": first["id"]}
            assert len(notes.requests) == 1

    def test_a_wait_on_another_sagas_effect_hears_of_its_end(
        self, agent: Caller, settings: Any, tmp_path: Path
    ) -> None:
        with target(OK) as notes, tools_at(settings, tmp_path, notes.url):
            agent.propose(agent.open(), tool="notes.once")
            second = agent.open("task-2")
            answers: list[Any] = []

            def ask() -> None:
                answers.append(agent.propose(second, tool="notes.once", Prefer="wait=20"))
                connection.close()

            waiter = threading.Thread(target=ask)
            waiter.start()
            time.sleep(0.3)
            with a_shift(settings):
                waiter.join(20)
        assert answers[0].status_code == 200
        assert answers[0].json()["state"] == "committed"

    def test_a_saga_with_steps_waits_for_all_of_them(
        self, agent: Caller, settings: Any, tmp_path: Path
    ) -> None:
        steps = [
            {"step_id": f"s{number}", "tool": "notes.add", "args": {"id": str(number)}}
            for number in range(3)
        ]
        with target(OK) as notes, tools_at(settings, tmp_path, notes.url), a_shift(settings):
            body = {"task_id": "t", "name": "n", "steps": steps}
            answer = agent.post("sagas", body, Prefer="wait=30")
            again = agent.post("sagas", body, Prefer="wait=30")
        assert answer.status_code == 201
        assert [step["state"] for step in answer.json()["steps"]] == ["committed"] * 3
        assert answer.headers["Preference-Applied"] == "wait=30"
        assert (again.status_code, again.json()["steps"]) == (200, answer.json()["steps"])

    def test_a_waiter_holds_no_connection(
        self, agent: Caller, settings: Any, tmp_path: Path
    ) -> None:
        with target(OK) as notes, tools_at(settings, tmp_path, notes.url):
            saga = agent.open()
            # From here on the hub has its listener, which is the only one it ever has.
            agent.propose(saga, "first", Prefer="wait=1")
            waiter = threading.Thread(target=_ask_and_hang_up, args=[agent, saga])
            before = _connections()
            waiter.start()
            time.sleep(1.5)
            meanwhile = _connections()
            waiter.join(10)
        assert meanwhile == before

    def test_50_threads_submit_one_step_and_one_proposal_is_recorded(
        self, agent: Caller, settings: Any, tmp_path: Path
    ) -> None:
        """Cases C20, H5."""
        answers: list[Any] = []
        barrier = threading.Barrier(50)

        def ask(saga: str) -> None:
            barrier.wait(30)
            answers.append(agent.propose(saga))
            connection.close()

        with target(OK) as notes, tools_at(settings, tmp_path, notes.url), a_shift(settings):
            saga = agent.open()
            threads = [threading.Thread(target=ask, args=[saga]) for _ in range(50)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join(60)
            agent.propose(saga, Prefer="wait=20")
            effects = len(notes.requests)
        codes = [answer.status_code for answer in answers]
        assert codes.count(202) == 1
        assert sorted(set(codes)) in ([200, 202, 409], [202, 409])
        assert len(codes) == 50
        assert (Step.objects.count(), effects) == (1, 1)
        assert Step.objects.get().state == StepState.COMMITTED
        assert Entry.objects.filter(kind="step.proposed").count() == 1


def _ask_and_hang_up(agent: Caller, saga: str) -> None:
    agent.propose(saga, "second", args={"id": "b"}, Prefer="wait=3")
    connection.close()


def _connections() -> int:
    with connection.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()")
        return int(cursor.fetchone()[0])
