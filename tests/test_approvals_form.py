"""The typed form: what goes through a browser unchanged comes back as exactly the same JSON."""

from __future__ import annotations

import json
import re
from typing import Any
from urllib.parse import urlencode

import pytest
from django.http import QueryDict
from hypothesis import given, settings
from hypothesis import strategies as st

from approvals.argsform import Part, form
from approvals.argsread import read
from approvals.argsvalues import add_to, remove_from, same
from ledger import keys

SCHEMA: dict[str, Any] = {
    "type": "object",
    "required": ["id", "amount"],
    "properties": {
        "id": {"type": "string"},
        "amount": {"type": "integer", "minimum": 1, "description": "in cents"},
        "rate": {"type": "number"},
        "urgent": {"type": "boolean"},
        "note": {"anyOf": [{"type": "string"}, {"type": "null"}]},
        "currency": {"enum": ["eur", "usd", 7]},
        "lines": {"type": "array", "items": {"$ref": "#/$defs/line"}},
        "trace": {"type": "object", "readOnly": True},
        "extra": {},
    },
    "$defs": {
        "line": {
            "type": "object",
            "required": ["sku", "count"],
            "properties": {"sku": {"type": "string"}, "count": {"type": "integer"}},
        }
    },
}
ARGS: dict[str, Any] = {
    "id": "007",
    "amount": 9007199254740991,
    "rate": 1.5,
    "urgent": False,
    "note": None,
    "currency": "eur",
    "lines": [{"sku": "a", "count": 1}, {"sku": "b/~c", "count": 2}],
    "trace": {"deep": [[{"x": None, "y": "1"}], 2.25], "b": True},
    "extra": {"any": ["1", 1, True, None, {"k": ""}], "1.0": 1.0},
}


def sent(parts: list[Part], **changed: str) -> QueryDict:
    """What a browser sends for this form, as application/x-www-form-urlencoded text.

    A browser turns every line break into CRLF, in names and in values.
    """
    query: dict[str, list[str]] = {}
    for part in parts:
        kind = changed.get(f"k:{part.pointer}", part.kind)
        query[f"k:{part.pointer}"] = [kind]
        query[f"p:{part.pointer}"] = list(part.names)
        if part.kind == "list":
            query[f"n:{part.pointer}"] = [str(part.length)]
        chosen = next((value for value, _, is_it in part.options if is_it), part.text)
        query[f"v:{part.pointer}"] = [chosen]
    for name, value in changed.items():
        query[name] = [value]
    pairs = [(name, value) for name, values in query.items() for value in values]
    return QueryDict(urlencode([(_breaks(name), _breaks(value)) for name, value in pairs]))


def _breaks(text: str) -> str:
    return re.sub("\r\n|\r|\n", "\r\n", text)


def one(parts: list[Part], pointer: str) -> Part:
    return next(part for part in parts if part.pointer == pointer)


def test_every_type_survives_view_edit_and_approve() -> None:
    """Case A13: int, bool, null, nested, a big integer, a read-only part; nothing is text."""
    parts = form(SCHEMA, ARGS, ARGS)
    value, faults = read(sent(parts))
    assert faults == {}
    assert same(value, ARGS)
    assert keys.canonical(value) == keys.canonical(ARGS)
    assert not any(part.is_changed for part in parts)
    assert one(parts, "/amount").help == "in cents; minimum 1"


_JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53) + 1, 2**53 - 1)
    | st.floats(-1e9, 1e9, width=32)
    | st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=12),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=6),
            inner,
            max_size=3,
        )
    ),
    max_leaves=12,
)


@settings(deadline=None)
@given(st.dictionaries(st.text("ab/~ .\n", max_size=4), _JSON, max_size=4))
def test_whatever_it_is_it_comes_back_as_the_same_json(args: dict[str, Any]) -> None:
    """Without a schema too, and with every character that a browser would change."""
    for as_json in (False, True):
        value, faults = read(sent(form({}, args, args, as_json=as_json)))
        assert faults == {}
        assert keys.canonical(value) == keys.canonical(args)


def test_null_and_left_out_are_two_answers() -> None:
    """Case A12 (c)."""
    parts = form(SCHEMA, ARGS, ARGS)
    assert ("absent", "left out") in one(parts, "/note").kinds
    assert ("null", "null") in one(parts, "/note").kinds
    assert [kind for kind, _ in one(parts, "/amount").kinds] == ["integer"]
    without, _ = read(sent(parts, **{"k:/note": "absent"}))
    assert "note" not in without
    empty, _ = read(sent(parts, **{"k:/note": "text", "v:/note": ""}))
    assert empty["note"] == ""
    null, _ = read(sent(parts))
    assert null["note"] is None


@pytest.mark.parametrize("text", ["", "12a", "1.5", "0x10", "1,200", "\u0661", "--1", "9" * 400])
def test_what_is_no_whole_number_is_refused_and_shown_again(text: str) -> None:
    parts = form(SCHEMA, ARGS, ARGS)
    value, faults = read(sent(parts, **{"v:/amount": text}))
    if text == "9" * 400:  # a whole number, and the tool's schema and the ledger judge it
        assert faults == {}
        return
    assert list(faults) == ["/amount"]
    again = one(form(SCHEMA, value, ARGS, faults), "/amount")
    assert (again.text, again.kind, again.fault) == (text, "integer", faults["/amount"])


def test_numbers_stay_numbers() -> None:
    parts = form(SCHEMA, ARGS, ARGS)
    value, _ = read(sent(parts, **{"v:/rate": "1.0", "v:/amount": "1.0"}))
    assert (value["rate"], value["amount"]) == (1.0, 1)
    assert keys.canonical({"a": value["rate"]}) == '{"a":1}'


def test_a_list_grows_and_shrinks_by_whole_items() -> None:
    grown = add_to(json.loads(json.dumps(ARGS)), "/lines", SCHEMA)
    parts = form(SCHEMA, grown, ARGS)
    assert one(parts, "/lines/2/sku").text == ""
    assert one(parts, "/lines/2/count").kind == "integer"
    _, faults = read(sent(parts))
    assert list(faults) == ["/lines/2/count"]
    value, faults = read(sent(parts, **{"v:/lines/2/sku": "c", "v:/lines/2/count": "3"}))
    assert faults == {}
    assert value["lines"][2] == {"sku": "c", "count": 3}
    assert remove_from(value, "/lines/0")["lines"] == [
        {"sku": "b/~c", "count": 2},
        {"sku": "c", "count": 3},
    ]


@pytest.mark.parametrize("place", ["", "/lines/9", "/id", "/lines/x", "/no/way", "lines"])
def test_a_place_that_is_no_item_changes_nothing(place: str) -> None:
    assert remove_from(json.loads(json.dumps(ARGS)), place) == ARGS
    if place != "/lines":
        assert add_to(json.loads(json.dumps(ARGS)), place, SCHEMA) == ARGS


@pytest.mark.parametrize("text", ["a\u202eb", "a\r\nb", "zero\u200bwidth", "\x1b[0m", "nbsp\xa0"])
def test_text_that_is_not_all_seen_is_edited_as_a_literal(text: str) -> None:
    parts = form(SCHEMA, ARGS | {"id": text}, ARGS)
    part = one(parts, "/id")
    assert part.kind == "json"
    assert part.text.isascii()
    value, _ = read(sent(parts))
    assert value["id"] == text


def test_what_is_too_large_for_a_form_is_json() -> None:
    args = {"ids": list(range(1000))}
    (part,) = form({}, args, args)
    assert part.kind == "json"
    value, faults = read(sent([part]))
    assert (value, faults) == (args, {})
