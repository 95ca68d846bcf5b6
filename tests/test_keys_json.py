"""The door for JSON: what is refused, with which status, and what is kept of an answer."""

from __future__ import annotations

import contextlib
import json
import time
from enum import Enum
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ledger.errors import InvalidArgs, InvalidJson, TooLarge
from ledger.keys import parse_json, storable

DEEP = 100_000


@pytest.mark.parametrize(
    ("body", "where"),
    [
        (b'{"args":{"a":1,"b":2,"a":3}}', "/args"),
        (b'{"a":1,"\\u0061":1}', ""),
        (b'[{"x":{"":1,"":2}}]', "/0/x"),
        (b'{"a":NaN}', "/a"),
        (b'{"a":[1,-Infinity]}', "/a/1"),
        (b'{"a":1e400}', "/a"),
        (b'{"a":-1e400}', "/a"),
        (b"1e400", ""),
        (b'{"a":9007199254740992}', "/a"),
        (b'{"a":-9007199254740992}', "/a"),
        (b'{"a":9007199254740993.0}', "/a"),
        (b'{"a/b":{"~":1e20}}', "/a~1b/~0"),
        (b'{"a":"x\\ud800y"}', "/a"),
        (b'{"a":"\\udc00\\ud800"}', "/a"),
        (b'{"a":["\\u0000"]}', "/a/0"),
        (b'{"a\\u0000":1}', "/a\\u0000"),
        (b'{"\\ud800":{"b":1}}', "/\\ud800"),
        (b'"\\u0000"', ""),
    ],
)
def test_json_that_two_readers_could_take_differently_is_422(body: bytes, where: str) -> None:
    """Cases C92 (duplicate keys), C90 (no number), C89 (2^53), C91 (half pairs), C93 (NUL)."""
    with pytest.raises(InvalidArgs) as refused:
        parse_json(body)
    assert [fault["pointer"] for fault in refused.value.extra["errors"]] == [where]
    assert (where or "the top") in refused.value.detail
    refused.value.detail.encode()  # the answer itself can be sent


def test_a_duplicate_key_is_named() -> None:
    with pytest.raises(InvalidArgs, match='"amount" is there twice'):
        parse_json(b'{"amount":1,"amount":2}')


@pytest.mark.parametrize(
    "body",
    [
        *[b"", b" ", b"{", b'{"a":}', b"{'a':1}", b"[1,]", b"01", b"1 2", b'"\x00"', b'"\n"'],
        *[b"tru", b"\xff", b'"\xed\xa0\x80"', b"\xef\xbb\xbf{}", '{"a":1}'.encode("utf-16")],
    ],
)
def test_what_is_not_json_is_400(body: bytes) -> None:
    with pytest.raises(InvalidJson):
        parse_json(body)


def test_a_syntax_error_says_where() -> None:
    with pytest.raises(InvalidJson, match="line 2 column 5"):
        parse_json(b'{"a":1,\n"b":}')


@pytest.mark.parametrize(
    "body",
    [
        b"[" * DEEP,
        b"[" * DEEP + b"]" * DEEP,
        b'{"a":' * DEEP,
        b'{"a":' * DEEP + b"1" + b"}" * DEEP,
        b"[" * 65 + b"]" * 65,
        b"[" * 900 + b"]" * 900,
    ],
    ids=["open lists", "lists", "open objects", "objects", "65 levels", "900 levels"],
)
def test_deep_nesting_is_400_and_fast(body: bytes) -> None:
    """Vector: nesting 100 k."""
    started = time.thread_time()  # what others do on this machine meanwhile is not its work
    with pytest.raises(InvalidJson, match="64 levels"):
        parse_json(body)
    assert time.thread_time() - started < 0.5


def test_the_deepest_allowed_nesting_is_read() -> None:
    body = b"[" * 64 + b"]" * 64
    assert json.dumps(parse_json(body)).encode() == body


def test_thousands_of_digits_are_422() -> None:
    """Vector: 5000-digit int."""
    with pytest.raises(InvalidArgs, match="strings"):
        parse_json(b'{"a":' + b"9" * 5000 + b"}")


def test_a_ten_megabyte_body_is_413() -> None:
    with pytest.raises(TooLarge, match="1000000"):
        parse_json(b'"' + b"x" * 10_000_000 + b'"')


def test_types_survive_reading() -> None:
    body = b'{"i":7,"f":7.5,"one":1.0,"t":true,"n":null,"s":"7","l":[{"big":9007199254740991}]}'
    value = parse_json(body)
    assert value["i"] == 7
    assert type(value["i"]) is int
    assert type(value["one"]) is float
    assert value["t"] is True
    assert value["n"] is None
    assert value["s"] == "7"
    assert value["l"][0]["big"] == 2**53 - 1


def test_escaped_pairs_and_control_characters_are_ordinary_text() -> None:
    assert parse_json(b'"\\ud83d\\ude00\\u0001"') == "\U0001f600\x01"


@given(st.binary(max_size=60))
def test_any_bytes_are_read_or_refused(body: bytes) -> None:
    with contextlib.suppress(InvalidJson, InvalidArgs):
        parse_json(body)


def test_a_small_body_is_read_in_microseconds() -> None:
    body = b'{"step_id":"r1","tool":"payments.refund","args":{"payment_intent":"pi_1","amount":5}}'
    best = min(_timed(body) for _ in range(5))
    assert best < 50e-6


def _timed(body: bytes) -> float:
    started = time.perf_counter()
    for _ in range(200):
        parse_json(body)
    return (time.perf_counter() - started) / 200


class _Hostile:
    def __repr__(self) -> str:
        raise RuntimeError("no")


def _cycle() -> list[Any]:
    items: list[Any] = []
    items.append(items)
    return items


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ({"id": "re_1", "n": None}, '{"id":"re_1","n":null}'),
        ([1, 1.5, True, "é"], '[1,1.5,true,"é"]'),
        (9007199254740993, "9007199254740993"),
    ],
)
def test_an_ordinary_answer_is_kept_as_it_is(value: Any, text: str) -> None:
    assert storable(value) == (text, False)


@pytest.mark.parametrize(
    ("value", "kept"),
    [
        ("a\x00b", "a\\u0000b"),
        ("\ud800", "\\ud800"),
        ({"k\x00": 1}, {"k\\u0000": 1}),
        (float("nan"), "NaN"),
        ([float("inf"), float("-inf")], ["Infinity", "-Infinity"]),
        (b"\xffok", "\\xffok"),
        ({1: 2}, {"1": 2}),
        ({3}, "{3}"),
    ],
)
def test_an_odd_answer_is_kept_visibly(value: Any, kept: Any) -> None:
    """Case C93, for what providers answer."""
    text, changed = storable(value)
    assert changed
    assert json.loads(text) == kept


@pytest.mark.parametrize(
    "value",
    [_Hostile(), [_Hostile()], _cycle(), 10**5000, {"a": 10**400}],
    ids=["no repr", "no repr inside", "cycle", "5000 digits", "400 digits"],
)
def test_no_answer_is_lost(value: Any) -> None:
    text, changed = storable(value)
    assert changed
    json.loads(text)


def test_a_long_answer_keeps_its_ids_and_says_what_was_cut() -> None:
    text, changed = storable({"id": "re_1", "log": "x" * 1_000_000})
    assert changed
    assert len(text) <= 200_000
    assert json.loads(text)["id"] == "re_1"
    assert "950000 characters were cut" in text


def test_an_endless_list_becomes_its_start_and_a_mark() -> None:
    text, changed = storable(['"\\'] * 200_000)
    assert changed
    assert len(text) <= 200_000
    assert "characters were cut" in json.loads(text)["cut"]


@given(st.recursive(st.none() | st.floats() | st.text() | st.binary(), st.lists, max_leaves=8))
def test_what_is_kept_is_always_json_that_postgres_takes(value: Any) -> None:
    text, _ = storable(value)
    text.encode("utf-8")
    assert "\\u0000" not in text.replace("\\\\u0000", "")
    json.loads(text, parse_constant=pytest.fail)


class _Named(str, Enum):  # noqa: UP042 - what tools answer with
    MEMBER = "what it is"


def test_of_an_enum_is_kept_what_it_is_and_not_what_it_is_called() -> None:
    assert storable({"paid": _Named.MEMBER}) == ('{"paid":"what it is"}', False)
