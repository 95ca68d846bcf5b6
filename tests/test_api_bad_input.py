"""Whatever is sent: a clear 4xx that says what to change, nothing stored, no key used up."""

from __future__ import annotations

from typing import Any

import pytest

from ledger.models import Entry, Saga, Step
from tests.apicast import Caller, problem_type

pytestmark = pytest.mark.usefixtures("tools")
GOOD = {"step_id": "s1", "tool": "notes.add", "args": {"id": "a"}}


def step(args: str) -> bytes:
    return f'{{"step_id":"s1","tool":"notes.add","args":{args}}}'.encode()


DEEP = b"[" * 100_000 + b"]" * 100_000
BODIES: dict[str, tuple[bytes, int, str]] = {
    "empty": (b"", 400, "invalid-json"),
    "not JSON": (b"{", 400, "invalid-json"),
    "not UTF-8": (b'{"step_id":"\xff"}', 400, "invalid-json"),
    "a list": (b"[]", 400, "invalid-json"),
    "a string": (b'"x"', 400, "invalid-json"),
    "null": (b"null", 400, "invalid-json"),
    "duplicate keys": (step('{"id":"a","id":"b"}'), 422, "invalid-args"),
    "NaN": (step('{"id":"a","amount":NaN}'), 422, "invalid-args"),
    "minus infinity": (step('{"id":"a","amount":-Infinity}'), 422, "invalid-args"),
    "1e400": (step('{"id":"a","amount":1e400}'), 422, "invalid-args"),
    "an integer beyond 2^53": (step('{"id":"a","amount":9007199254740993}'), 422, "invalid-args"),
    "5000 digits": (step('{"id":"a","amount":' + "9" * 5000 + "}"), 422, "invalid-args"),
    "a lone surrogate": (step('{"id":"\\ud800"}'), 422, "invalid-args"),
    "a lone surrogate in a key": (step('{"id":"a","\\ud800":1}'), 422, "invalid-args"),
    "NUL": (step('{"id":"\\u0000"}'), 422, "invalid-args"),
    "100,000 levels": (DEEP, 400, "invalid-json"),
    "100,000 levels of args": (
        step('{"id":' + "[" * 10**5 + "]" * 10**5 + "}"),
        400,
        "invalid-json",
    ),
    "10 MB": (step('{"id":"' + "a" * 10_000_000 + '"}'), 413, "too-large"),
    "args as a string (A9)": (step('"{\\"id\\":\\"a\\"}"'), 422, "invalid-args"),
    "args as a list": (step("[]"), 422, "invalid-args"),
    "args as null": (step("null"), 422, "invalid-args"),
    "args outside the schema": (step('{"id":7}'), 422, "invalid-args"),
    "an unknown argument": (step('{"id":"a","x":1}'), 422, "invalid-args"),
}
FIELDS: dict[str, tuple[dict[str, Any], int, str]] = {
    "an unknown field": ({"agrs": {}}, 422, "invalid-args"),
    "a number as step_id": ({"step_id": 1}, 422, "invalid-args"),
    "an empty step_id": ({"step_id": ""}, 422, "invalid-args"),
    "a blank step_id": ({"step_id": "  "}, 422, "invalid-args"),
    "a step_id of 201": ({"step_id": "x" * 201}, 422, "invalid-args"),
    "a line break in step_id": ({"step_id": "a\nb"}, 422, "invalid-args"),
    "an escape in step_id": ({"step_id": "a\x1b[31m"}, 422, "invalid-args"),
    "a line separator in step_id": ({"step_id": "a\u2028b"}, 422, "invalid-args"),
    "no step_id": ({"step_id": None}, 400, "missing-step-id"),
    "an unknown tool": ({"tool": "no.such"}, 422, "unknown-tool"),
    "a tool of 201": ({"tool": "x" * 201}, 422, "invalid-args"),
    "a number as tool": ({"tool": 1}, 422, "invalid-args"),
    "a number as reason": ({"reason": 1}, 422, "invalid-args"),
    "a reason of 2001": ({"reason": "x" * 2001}, 422, "invalid-args"),
    "alternatives as object": ({"alternatives": {}}, 422, "invalid-args"),
    "an alternative without args": ({"alternatives": [{"tool": "notes.add"}]}, 422, "invalid-args"),
    "an unknown alternative": (
        {"alternatives": [{"tool": "no.such", "args": {}}]},
        422,
        "unknown-tool",
    ),
    "repeat_of that is no id": ({"repeat_of": "x", "reason": "y"}, 422, "invalid-args"),
    "repeat_of without a reason": (
        {"repeat_of": "019a0000-0000-7000-8000-000000000000"},
        422,
        "invalid-args",
    ),
    "repeat_of of nothing": (
        {"repeat_of": "019a0000-0000-7000-8000-000000000000", "reason": "again"},
        422,
        "invalid-args",
    ),
}


def assert_refused(agent: Caller, saga: str, answer: Any, status: int, type_: str) -> None:
    assert (answer.status_code, problem_type(answer)) == (status, type_), answer.content
    assert not Step.objects.exists()
    assert Entry.objects.count() == 1
    accepted = agent.post(f"sagas/{saga}/steps", GOOD)
    assert accepted.status_code == 202, "the refused submit used the key up"


@pytest.mark.parametrize("name", BODIES)
def test_a_bad_body_is_refused_and_uses_up_no_key(agent: Caller, name: str) -> None:
    """Cases A9, C82, C89, C90, C91, C92, C93, H3."""
    body, status, type_ = BODIES[name]
    saga = agent.open()
    assert_refused(agent, saga, agent.post(f"sagas/{saga}/steps", body), status, type_)


@pytest.mark.parametrize("name", FIELDS)
def test_a_bad_field_is_refused_and_uses_up_no_key(agent: Caller, name: str) -> None:
    """Cases C82, H3."""
    fields, status, type_ = FIELDS[name]
    saga = agent.open()
    assert_refused(agent, saga, agent.post(f"sagas/{saga}/steps", GOOD | fields), status, type_)


@pytest.mark.django_db(transaction=True)  # what is refused is rolled back, not only unseen
@pytest.mark.parametrize(
    ("fields", "status", "type_"),
    [
        ({"task_id": "x\x00"}, 422, "invalid-args"),
        ({"task_id": ""}, 422, "invalid-args"),
        ({"task_id": "x" * 201}, 422, "invalid-args"),
        ({"task_id": 5}, 422, "invalid-args"),
        ({"name": None}, 422, "invalid-args"),
        ({"metadata": []}, 422, "invalid-args"),
        ({"metadata": "{}"}, 422, "invalid-args"),
        ({"retry_budget": -1}, 422, "invalid-args"),
        ({"retry_budget": True}, 422, "invalid-args"),
        ({"retry_budget": 1.5}, 422, "invalid-args"),
        ({"retry_budget": 2**40}, 422, "invalid-args"),
        ({"webhook": "javascript:alert(1)"}, 422, "invalid-args"),
        ({"webhook": "http://"}, 422, "invalid-args"),
        ({"webhook": "http://[::1"}, 422, "invalid-args"),
        ({"steps": {}}, 422, "invalid-args"),
        ({"steps": [7]}, 422, "invalid-args"),
        ({"steps": [{"tool": "notes.add", "args": {"id": "a"}}]}, 400, "missing-step-id"),
        ({"steps": [GOOD, GOOD]}, 422, "invalid-args"),
        ({"steps": [GOOD | {"tool": "no.such"}]}, 422, "unknown-tool"),
        ({"steps": [GOOD, GOOD | {"step_id": "s2", "args": {"id": 1}}]}, 422, "invalid-args"),
        ({"surprise": 1}, 422, "invalid-args"),
    ],
)
def test_a_bad_saga_is_refused_as_a_whole(
    agent: Caller, fields: dict[str, Any], status: int, type_: str
) -> None:
    answer = agent.post("sagas", {"task_id": "t", "name": "n"} | fields)
    assert (answer.status_code, problem_type(answer)) == (status, type_), answer.content
    assert not Saga.objects.exists()
    assert not Step.objects.exists()


def test_the_faulty_field_is_named_by_json_pointer(agent: Caller) -> None:
    body = {"task_id": "t", "name": "n", "steps": [GOOD, GOOD | {"tool": 5}]}
    answer = agent.post("sagas", body)
    assert answer.json()["errors"][0]["pointer"] == "/steps/1/tool"
    assert "/steps/1/tool" in answer.json()["detail"]


BAD = {"id": 7}
PLACES: dict[str, tuple[bytes, str]] = {
    "an argument": (step('{"id":7}'), "/args/id"),
    "an unknown argument": (step('{"id":"a","x/y":1}'), "/args/x~1y"),
    "an argument that the effect key needs": (
        b'{"step_id":"s1","tool":"notes.once","args":{"id":" "}}',
        "/args/id",
    ),
    "args that are no object": (step("[]"), "/args"),
    "no args": (b'{"step_id":"s1","tool":"notes.add"}', "/args"),
    "a key that is there twice": (step('{"id":"a","id":"b"}'), "/args"),
    "NaN": (step('{"id":"a","amount":NaN}'), "/args/amount"),
    "5000 digits": (step('{"id":' + "9" * 5000 + "}"), ""),
}


@pytest.mark.parametrize("name", PLACES)
def test_the_pointer_leads_into_the_body_of_a_step(agent: Caller, name: str) -> None:
    body, place = PLACES[name]
    answer = agent.post(f"sagas/{agent.open()}/steps", body)
    assert [fault["pointer"] for fault in answer.json()["errors"]] == [place]
    assert all(fault["detail"] for fault in answer.json()["errors"])
    assert place in answer.json()["detail"]


@pytest.mark.parametrize(
    ("second", "place"),
    [
        ({"args": BAD}, "/steps/1/args/id"),
        ({"alternatives": [{"tool": "notes.add", "args": one} for one in ({"id": "a"}, BAD)]},
         "/steps/1/alternatives/1/args/id"),
        ({"repeat_of": "019a0000-0000-7000-8000-000000000000", "reason": "again"},
         "/steps/1/repeat_of"),
        ({"repeat_of": "019a0000-0000-7000-8000-000000000000"}, "/steps/1/reason"),
    ],
)  # fmt: skip
def test_the_pointer_says_which_step_of_a_saga_it_means(
    agent: Caller, second: dict[str, Any], place: str
) -> None:
    steps = [GOOD, GOOD | {"step_id": "s2"} | second]
    answer = agent.post("sagas", {"task_id": "t", "name": "n", "steps": steps})
    assert [fault["pointer"] for fault in answer.json()["errors"]] == [place]
    assert "/steps/1" in answer.json()["detail"]


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", "text/json"])
def test_another_content_type_is_415(agent: Caller, kind: str) -> None:
    answer = agent.send("POST", "sagas", b'{"task_id":"t","name":"n"}', kind=kind)
    assert (answer.status_code, problem_type(answer)) == (415, "about:blank")


@pytest.mark.parametrize("kind", ["application/json; charset=utf-8", "application/vnd.x+json"])
def test_every_kind_of_json_is_read(agent: Caller, kind: str) -> None:
    assert agent.send("POST", "sagas", b'{"task_id":"t","name":"n"}', kind=kind).status_code == 201


@pytest.mark.parametrize(
    "query",
    [
        "limit=0",
        "limit=101",
        "limit=x",
        "state=nonsense",
        "cursor=zzz",
        "task_id=%00",
        "agent=%00",
        "task_id=" + "x" * 201,
    ],
)
def test_a_bad_query_is_422(agent: Caller, query: str) -> None:
    answer = agent.get(f"sagas?{query}")
    assert (answer.status_code, problem_type(answer)) == (422, "invalid-args")


def test_a_refusal_has_no_words_of_the_library_that_checked(agent: Caller) -> None:
    state = agent.get("sagas?state=nonsense").json()["errors"]
    assert [fault["pointer"] for fault in state] == ["/state"]
    assert "'running'" in state[0]["detail"]
    body = {"task_id": "t", "name": "a\nb", "webhook": "https://elsewhere.example/"}
    faults = agent.post("sagas", body).json()["errors"]
    assert [fault["pointer"] for fault in faults] == ["/name", "/webhook"]
    assert faults[0]["detail"].startswith("control characters")
    assert faults[1]["detail"].startswith("webhooks to ")


@pytest.mark.parametrize("query", ["after=-1", "after=x", "after=99999999999999999999"])
def test_a_bad_place_in_the_ledger_is_422(agent: Caller, query: str) -> None:
    answer = agent.get(f"sagas/{agent.open()}/ledger?{query}")
    assert (answer.status_code, problem_type(answer)) == (422, "invalid-args")


@pytest.mark.parametrize(
    "fields",
    [
        {"scope": "planet"},
        {"scope": "all", "value": "x"},
        {"scope": "tool"},
        {"scope": "saga", "value": "not-an-id"},
        {"scope": "saga", "value": "019a0000-0000-7000-8000-000000000000"},
        {"scope": "agent", "value": "nobody of this name"},
        {"scope": "tool", "value": "no.such.tool"},
        {"reason": ""},
        {"reason": " "},
        {"expires_at": "tomorrow"},
        {"expires_at": 5},
        {"expires_at": "2030-13-45T99:00:00Z"},
        {"expires_at": "2030-01-01"},
        {"expires_at": "9999-12-31T23:59:59-14:00"},
        {"expires_at": "0001-01-01T00:00:00+14:00"},
    ],
)
def test_a_bad_freeze_is_422(oncall: Caller, fields: dict[str, Any]) -> None:
    answer = oncall.post("freezes", {"scope": "all", "reason": "fire"} | fields)
    assert (answer.status_code, problem_type(answer)) == (422, "invalid-args"), answer.content


def test_a_freeze_takes_every_offset_that_a_time_may_have(oncall: Caller) -> None:
    until = "2090-01-01T00:00:00+23:59"
    answer = oncall.post("freezes", {"scope": "all", "reason": "fire", "expires_at": until})
    assert (answer.status_code, oncall.get("freezes").status_code) == (201, 200)
    assert answer.json()["expires_at"].startswith("2089-12-31T00:01:00")
