"""What really goes over the wire for a described request: placeholders in every place."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import parse_qsl

import jmespath
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from ledger.outcomes import Done, Failed
from ledger.states import Direction
from ledger.tools.contract import Tool
from ledger.tools.placeholders import Placeholder, in_jmespath, in_url, template
from tests.sockets import says, target
from tests.tooltexts import call, execute, tool_of


def sent(more: str, args: dict[str, Any], path: str = "/do", method: str = "POST") -> bytes:
    with target(says("200 OK")) as running:
        outcome = tool_of(execute(running.url + path, more, method)).run(call(args))
        assert isinstance(outcome, Done), outcome
        return running.requests[0]


def body_of(request: bytes) -> bytes:
    return request.partition(b"\r\n\r\n")[2]


def refused(more: str, args: dict[str, Any], path: str = "/do") -> str:
    with target(says("200 OK")) as running:
        outcome = tool_of(execute(running.url + path, more)).run(call(args))
        assert running.requests == []
    assert isinstance(outcome, Failed)
    assert not outcome.retryable
    return outcome.error


def test_args_are_the_json_body_by_default() -> None:
    args = {"id": "a", "amount": 5, "note": None, "deep": {"x": [1.5, True]}}
    assert json.loads(body_of(sent("", args))) == args


@pytest.mark.parametrize("method", ["GET", "DELETE"])
def test_methods_without_a_body_send_none_by_default(method: str) -> None:
    assert body_of(sent("", {"id": "a"}, method=method)) == b""


def test_a_placeholder_alone_keeps_its_json_type() -> None:
    more = (
        "json = { n = '{args.amount}', t = 'no {args.amount}', o = '{args.deep}', "
        "z = '{args.note}', l = ['{args.deep.b}', 'x'], fixed = 1, s = '{saga.metadata.env}', "
        "p = '{step.position}' }"
    )
    args = {"id": "a", "amount": 7, "note": None, "deep": {"b": True}}
    assert json.loads(body_of(sent(more, args))) == {
        "n": 7,
        "t": "no 7",
        "o": {"b": True},
        "z": None,
        "l": [True, "x"],
        "fixed": 1,
        "s": "prod",
        "p": 2,
    }


def test_an_absent_optional_arg_leaves_its_member_out() -> None:
    assert json.loads(
        body_of(sent("json = { a = '{args.note}', b = '{args.id}' }", {"id": 1}))
    ) == {"b": 1}
    form = "form = { a = '{args.note}', b = '{args.id}' }"
    assert body_of(sent(form, {"id": "1"})) == b"b=1"
    assert body_of(sent(form, {"id": "1", "note": None})) == b"b=1"


def test_form_values_are_text() -> None:
    more = (
        "form = { a = '{args.amount}', b = '{args.deep}', c = '{args.note}', n = 3, t = true, "
        "'meta[key]' = '{idempotency_key}', text = 'saga {saga.task_id}&x=1' }"
    )
    body = body_of(sent(more, {"id": "i", "amount": 100, "deep": False, "note": 1.0})).decode()
    assert dict(parse_qsl(body)) == {
        "a": "100",
        "b": "false",
        "c": "1",
        "n": "3",
        "t": "true",
        "meta[key]": "key-1",
        "text": "saga task 7&x=1",
    }


@pytest.mark.parametrize(
    ("value", "line"),
    [
        ("a/b?c#d", b"POST /x/a%2Fb%3Fc%23d/y?q=a%2Fb%3Fc%23d HTTP/1.1"),
        ("..a", b"POST /x/..a/y?q=..a HTTP/1.1"),
        (
            "é %2e&=@",
            b"POST /x/%C3%A9%20%252e%26%3D%40/y?q=%C3%A9%20%252e%26%3D%40 HTTP/1.1",
        ),
        (True, b"POST /x/true/y?q=true HTTP/1.1"),
        (7, b"POST /x/7/y?q=7 HTTP/1.1"),
        ("\r\nX: y", b"POST /x/%0D%0AX%3A%20y/y?q=%0D%0AX%3A%20y HTTP/1.1"),
    ],
)
def test_a_value_in_a_url_is_percent_encoded(value: Any, line: bytes) -> None:
    request = sent("", {"id": value}, path="/x/{args.id}/y?q={args.id}")
    assert request.split(b"\r\n")[0] == line


@pytest.mark.parametrize(
    "value", ["", ".", "..", "../admin", "a/../..", "a\\..\\b", None, {"a": 1}, [1]]
)
def test_a_value_that_would_change_the_path_is_never_sent(value: Any) -> None:
    assert "nothing was sent" in refused("", {"id": value}, path="/orders/{args.id}")


def test_a_missing_value_in_a_url_is_never_sent() -> None:
    assert "{args.note} has no value" in refused("", {"id": 1}, path="/orders/{args.note}")


def test_an_empty_value_in_a_query_is_fine() -> None:
    assert sent("", {"id": ""}, path="/o?q={args.id}").startswith(b"POST /o?q= HTTP")


@pytest.mark.parametrize("value", ["a\r\nEvil: 1", "a\nb", "a\x00"])
def test_a_header_cannot_be_split(value: str) -> None:
    assert "control character" in refused("headers = { X-Id = '{args.id}' }", {"id": value})


def test_header_text_may_hold_placeholders() -> None:
    request = sent("headers = { X-Saga = 'saga {saga.id} é' }", {"id": 1})
    assert b"x-saga: saga s1 " + "é".encode() in request.lower()


def test_literal_braces_stay() -> None:
    more = "json = { a = '{{args.id}} is {args.id}', b = '{ x }', c = '{}', d = '{\"k\": 1}' }"
    assert json.loads(body_of(sent(more, {"id": "7"}))) == {
        "a": "{args.id} is 7",
        "b": "{ x }",
        "c": "{}",
        "d": '{"k": 1}',
    }


def test_a_placeholder_inside_a_value_is_not_filled_again() -> None:
    body = body_of(sent("json = { a = 'x {args.id}' }", {"id": "{idempotency_key}"}))
    assert json.loads(body) == {"a": "x {idempotency_key}"}


def test_undoing_may_use_the_recorded_result() -> None:
    with target(says("200 OK")) as running:
        text = execute(running.url) + (
            f'[tools."t".compensate]\nmethod = "POST"\nurl = "{running.url}/'
            "{result.items.0.id}\"\njson = { all = '{result}' }\n"
        )
        tool: Tool = tool_of(text, tier="compensatable")
        result = {"items": [{"id": "i/1"}]}
        tool.run(call(direction=Direction.COMPENSATE, result=result, key="comp:k"))
        request = running.requests[0]
    assert request.startswith(b"POST /i%2F1 HTTP")
    assert b"comp:k" in request
    assert json.loads(body_of(request)) == {"all": result}


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_any_text_in_a_url_stays_one_piece(value: str) -> None:
    assert not set(in_url(Placeholder(("args", "x")), value)) & set("/?#@:&= \\")


@example("`")
@example(["a`b", '\\`"', "\\"])
@given(st.recursive(st.none() | st.booleans() | st.integers() | st.text(), st.lists, max_leaves=5))
def test_any_value_in_jmespath_is_a_literal_and_nothing_else(value: Any) -> None:
    found = template("[?k == {args.x}] | [0].k").filled({"args": {"x": value}}, in_jmespath)
    assert jmespath.search(found, [{"k": value}, {"k": "`decoy`"}]) == value
