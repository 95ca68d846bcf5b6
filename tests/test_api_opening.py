"""A saga that is opened with steps: all of them are told, or none is there."""

from __future__ import annotations

from typing import Any

import pytest

from ledger import storage
from ledger.models import OutboxMessage, Saga, Step
from ledger.services.claiming_sql import TAKE
from ledger.services.verifying import verify
from tests.apicast import Caller, problem_type
from tests.policycast import under

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("tools")]

DENIES = """
[[rule]]
name = "not this one"
tool = "notes.*"
when = "args.id == 'bad'"
verdict = "deny"
"""


def step(step_id: str, wanted: str, tool: str = "notes.add", **more: Any) -> dict[str, Any]:
    return {"step_id": step_id, "tool": tool, "args": {"id": wanted}, **more}


def opened(agent: Caller, *steps: dict[str, Any]) -> Any:
    return agent.post("sagas", {"task_id": "task-1", "name": "Task", "steps": steps})


@pytest.mark.parametrize(
    ("wanted", "states"),
    [
        (["bad"], ["rejected"]),
        (["bad", "fine"], ["rejected", "cancelled"]),
        (["fine", "bad"], ["cancelled", "rejected"]),
        (["fine", "bad", "good"], ["cancelled", "rejected", "cancelled"]),
        (["bad", "fine", "bad"], ["rejected", "cancelled", "rejected"]),
    ],
)
def test_a_denied_step_is_told_and_nothing_beside_it_runs(
    agent: Caller, wanted: list[str], states: list[str]
) -> None:
    steps = [step(f"s{number}", one) for number, one in enumerate(wanted)]
    with under(DENIES):
        answer = opened(agent, *steps)
        again = opened(agent, *steps)
    assert (answer.status_code, again.status_code) == (201, 200)
    saga = agent.get(f"sagas/{answer.json()['id']}").json()
    assert (saga["state"], [one["state"] for one in saga["steps"]]) == ("compensated", states)
    denied = [one for one in saga["steps"] if one["state"] == "rejected"]
    assert all("not this one" in one["error"]["detail"] for one in denied)
    entries = agent.get(f"sagas/{saga['id']}/ledger").json()["items"]
    told = [e["payload"]["rule"] for e in entries if e["payload"].get("verdict") == "deny"]
    assert told == ["not this one"] * len(denied)
    (turn,) = [entry for entry in entries if entry["kind"] == "saga.compensating"]
    assert turn["payload"]["cause"] == denied[0]["step_id"]
    assert list(verify()) == []


def test_what_was_asked_beside_a_denied_step_is_withdrawn(agent: Caller) -> None:
    with under(DENIES):
        answer = opened(agent, step("s1", "bad"), step("s2", "fine", "notes.grave"))
    assert [one["state"] for one in answer.json()["steps"]] == ["rejected", "cancelled"]
    assert answer.json()["steps"][1]["approval"]["state"] == "cancelled"


def test_no_message_of_a_denied_opening_is_good_for_a_run(agent: Caller) -> None:
    with under(DENIES):
        answer = opened(agent, step("s1", "bad"), step("s2", "fine"))
    fence = Saga.objects.get(pk=answer.json()["id"]).fence
    assert all(one.saga_fence < fence for one in storage.rows(TAKE, [10]))
    assert OutboxMessage.objects.count() == 1


@pytest.mark.django_db(transaction=True)
def test_two_steps_that_claim_one_effect_are_named_and_nothing_is_opened(agent: Caller) -> None:
    second = step("s2", "a", "notes.once") | {"args": {"id": "a", "amount": 2}}
    answer = opened(agent, step("s1", "a", "notes.once"), second)
    assert (answer.status_code, problem_type(answer)) == (422, "effect-claimed")
    assert "Steps 's1' and 's2' claim one effect" in answer.json()["detail"]
    assert not {"effect_of", "step"} & answer.json().keys()
    assert (Saga.objects.count(), Step.objects.count()) == (0, 0)


ALTERNATIVE = [{"tool": "notes.once", "args": {"id": "b"}}]


@pytest.mark.parametrize(
    ("first", "then"),
    [
        ({}, {"alternatives": ALTERNATIVE}),
        ({}, {"alternatives": [{"tool": "no.such.tool", "args": {}}]}),
        ({"alternatives": ALTERNATIVE}, {}),
        ({"alternatives": ALTERNATIVE}, {"alternatives": [*ALTERNATIVE, *ALTERNATIVE]}),
        ({}, {"repeat_of": "019a0000-0000-7000-8000-000000000000"}),
    ],
)
def test_the_same_task_with_other_alternatives_is_a_mismatch(
    agent: Caller, first: dict[str, Any], then: dict[str, Any]
) -> None:
    saga = opened(agent, step("s1", "a", **first)).json()["id"]
    answer = opened(agent, step("s1", "a", **then))
    assert (answer.status_code, problem_type(answer)) == (422, "task-mismatch")
    assert answer.json()["saga"] == saga
    again = opened(agent, step("s1", "a", **first))
    assert (again.status_code, again.json()["id"]) == (200, saga)


@pytest.mark.django_db(transaction=True)
def test_a_task_that_an_earlier_release_opened_with_alternatives_is_found_again(
    agent: Caller,
) -> None:
    """Its digest does not tell of them: a mismatch would send the agent to a new task_id."""
    steps = [step("s1", "a", alternatives=ALTERNATIVE)]
    saga = opened(agent, *steps).json()["id"]
    as_once = agent.open("task-2", steps=[step("s1", "a")])
    storage.execute("ALTER TABLE ledger_saga DISABLE TRIGGER ledger_saga_frozen")
    Saga.objects.filter(pk=saga).update(opened_digest=Saga.objects.get(pk=as_once).opened_digest)
    storage.execute("ALTER TABLE ledger_saga ENABLE TRIGGER ledger_saga_frozen")
    again = opened(agent, *steps)
    assert (again.status_code, again.json()["id"]) == (200, saga)
