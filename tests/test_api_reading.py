"""What is shown to whom, in which shape, page by page."""

from __future__ import annotations

import hashlib
import itertools
from typing import Any

import pytest

from ledger.api import answered
from ledger.models import Freeze, Step
from tests.apicast import Caller, problem_type

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("tools")]
NOTHING = "019a0000-0000-7000-8000-000000000000"


def pages(caller: Caller, path: str, name: str = "cursor") -> list[list[Any]]:
    """Every page of a list, by its next_cursor."""
    found, cursor = [], ""
    while True:
        page = caller.get(
            f"{path}{'&' if '?' in path else '?'}limit=2&{name}={cursor or 0}"
            if cursor or name == "after"
            else f"{path}{'&' if '?' in path else '?'}limit=2"
        ).json()
        found.append(page["items"])
        if page["next_cursor"] is None:
            return found
        cursor = page["next_cursor"]


def test_an_agent_sees_only_its_own(agent: Caller, other_agent: Caller, viewer: Caller) -> None:
    saga = agent.open()
    step = agent.propose(saga).json()["id"]
    mine = [f"sagas/{saga}", f"steps/{step}", f"sagas/{saga}/ledger"]
    for path in mine:
        assert agent.get(path).status_code == 200
        assert viewer.get(path).status_code == 200
        hidden = other_agent.get(path)
        assert (hidden.status_code, problem_type(hidden)) == (404, "not-found")
    assert other_agent.get("sagas").json()["items"] == []
    assert other_agent.get("sagas?agent=refunder").json()["items"] == []
    assert len(viewer.get("sagas").json()["items"]) == 1
    for path, body in (
        ("steps", {"step_id": "x", "tool": "notes.add", "args": {"id": "x"}}),
        ("complete", None),
        ("abort", {"reason": "x"}),
    ):
        assert other_agent.post(f"sagas/{saga}/{path}", body).status_code == 404


def test_hidden_and_absent_look_the_same(agent: Caller, other_agent: Caller) -> None:
    saga = agent.open()
    hidden, absent = other_agent.get(f"sagas/{saga}"), other_agent.get(f"sagas/{NOTHING}")
    assert hidden.json() == absent.json()


@pytest.mark.parametrize("name", ["sagas", "steps"])
@pytest.mark.parametrize("wrong", [NOTHING, "x", "%00", "1", "../sagas"])
def test_what_is_no_id_is_not_found(agent: Caller, name: str, wrong: str) -> None:
    answer = agent.get(f"{name}/{wrong}")
    assert (answer.status_code, problem_type(answer)) == (404, "not-found")


def test_the_documents_have_exactly_the_fields_of_the_contract(
    agent: Caller, oncall: Caller
) -> None:
    saga = agent.open(metadata={"env": "prod"})
    step = agent.propose(saga).json()
    answered.StepDocument.model_validate(step, strict=False)
    document = agent.get(f"sagas/{saga}").json()
    answered.SagaDocument.model_validate(document, strict=False)
    assert document["steps"] == [step]
    assert (document["agent"], document["metadata"]) == ("refunder", {"env": "prod"})
    assert document["url"] == f"http://testserver/sagas/{saga}/"
    assert document["residue"] == []
    assert list(step) == [
        "id",
        "saga_id",
        "step_id",
        "position",
        "tool",
        "tool_version",
        "args",
        "args_digest",
        "idempotency_key",
        "tier",
        "state",
        "result",
        "error",
        "reason",
        "approval",
        "effect_of",
        "attempts",
        "created_at",
        "finished_at",
    ]
    assert list(document) == [
        "id",
        "task_id",
        "name",
        "agent",
        "state",
        "metadata",
        "steps",
        "residue",
        "created_at",
        "updated_at",
        "url",
    ]
    assert step["created_at"].endswith("Z")
    assert step["args_digest"] == hashlib.sha256(b'{"id":"a"}').hexdigest()
    for entry in agent.get(f"sagas/{saga}/ledger").json()["items"]:
        answered.EntryDocument.model_validate(entry, strict=False)
    for tool in agent.get("tools").json()["items"]:
        answered.ToolDocument.model_validate(tool, strict=False)
    freeze = oncall.post("freezes", {"scope": "all", "reason": "x"}).json()
    answered.FreezeDocument.model_validate(freeze, strict=False)


def test_sagas_come_newest_first_page_by_page(agent: Caller) -> None:
    opened = [agent.open(f"t{number}") for number in range(5)]
    found = pages(agent, "sagas")
    assert [len(page) for page in found] == [2, 2, 1]
    assert [saga["id"] for page in found for saga in page] == opened[::-1]


def test_sagas_are_found_by_task_state_and_agent(
    agent: Caller, other_agent: Caller, viewer: Caller
) -> None:
    first, second = agent.open("t1"), agent.open("t2")
    agent.post(f"sagas/{second}/complete")
    other = other_agent.open("t1")

    def ids(query: str) -> list[str]:
        return [saga["id"] for saga in viewer.get(f"sagas?{query}").json()["items"]]

    assert ids("task_id=t1") == [other, first]
    assert ids("state=completed") == [second]
    assert ids("agent=refunder") == [second, first]
    assert ids("agent=refunder&task_id=t1&state=running") == [first]
    assert ids("agent=nobody") == []


def test_a_ledger_is_read_on_from_where_one_stopped(agent: Caller) -> None:
    saga = agent.open()
    for number in range(3):
        agent.propose(saga, f"s{number}", args={"id": str(number)})
    found = pages(agent, f"sagas/{saga}/ledger", "after")
    assert [len(page) for page in found] == [2, 2]
    entries = [entry for page in found for entry in page]
    assert [entry["seq"] for entry in entries] == [1, 2, 3, 4]
    assert all(b["prev_hash"] == a["hash"] for a, b in itertools.pairwise(entries))
    assert pages(agent, f"sagas/{saga}/ledger") == found
    for nothing in ("cursor=", "after=", "cursor=&after="):
        assert agent.get(f"sagas/{saga}/ledger?{nothing}").json()["items"] == entries
    assert agent.get(f"sagas/{saga}/ledger?after=99").json() == {"items": [], "next_cursor": None}


def test_tools_come_page_by_page(agent: Caller) -> None:
    names = [[tool["name"] for tool in page] for page in pages(agent, "tools")]
    assert names == [["notes.add", "notes.grave"], ["notes.once"]]


def test_a_freeze_is_set_listed_and_lifted(oncall: Caller) -> None:
    until = "2999-01-31T12:00:00+01:00"
    body = {"scope": "tool", "value": "notes.add", "reason": "fire", "expires_at": until}
    added = oncall.post("freezes", body)
    assert added.status_code == 201
    assert added.json()["expires_at"] == "2999-01-31T11:00:00.000000Z"
    assert added.json()["created_by"] == "person:oncall-person"
    assert oncall.get("freezes").json()["items"] == [added.json()]
    for _ in range(2):
        assert oncall.send("DELETE", f"freezes/{added.json()['id']}").status_code == 204
    assert oncall.get("freezes").json()["items"] == []
    assert Freeze.objects.get().lifted_by == "person:oncall-person"
    assert oncall.send("DELETE", f"freezes/{NOTHING}").status_code == 404


def test_a_step_that_is_proposed_under_a_freeze_is_accepted_and_waits(
    agent: Caller, oncall: Caller
) -> None:
    saga = agent.open()
    assert oncall.post("freezes", {"scope": "all", "reason": "fire"}).status_code == 201
    answer = agent.propose(saga)
    assert (answer.status_code, answer.json()["state"]) == (202, "queued")


def test_an_aborted_saga_without_effects_ends_backwards(agent: Caller) -> None:
    saga = agent.open()
    agent.propose(saga)
    answer = agent.post(f"sagas/{saga}/abort", {"reason": "changed my mind"})
    assert answer.status_code == 200
    assert answer.json()["state"] == "compensated"
    assert [step["state"] for step in answer.json()["steps"]] == ["cancelled"]
    assert agent.post(f"sagas/{saga}/abort", {}).status_code == 422


def test_an_operator_answers_only_what_waits_for_an_answer(agent: Caller, oncall: Caller) -> None:
    step = agent.propose(agent.open()).json()["id"]
    answer = oncall.post(f"steps/{step}/resolve", {"answer": "happened", "reason": "seen"})
    assert (answer.status_code, problem_type(answer)) == (409, "already-decided")
    answer = oncall.post(f"steps/{step}/retry", {"reason": "please"})
    assert (answer.status_code, problem_type(answer)) == (409, "already-decided")
    bad: list[dict[str, Any]] = [
        {"answer": "maybe", "reason": "x"},
        {"answer": "happened"},
        {"answer": "did_not_happen", "reason": "x", "result": 1},
    ]
    for body in bad:
        assert oncall.post(f"steps/{step}/resolve", body).status_code == 422
    assert Step.objects.get().state == "queued"
