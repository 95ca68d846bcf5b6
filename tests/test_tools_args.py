"""Args against the tool's schema: defaults, faults, identities."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ledger.errors import InvalidArgs
from ledger.keys import canonical, fingerprint
from ledger.tools.faults import DefinitionError
from ledger.tools.identity import Identity
from ledger.tools.schemas import Schema, checked, closed

SCHEMA: dict[str, Any] = {
    "type": "object",
    "required": ["id"],
    "properties": {
        "id": {"type": "integer"},
        "active": {"type": "boolean", "default": False},
        "to": {"type": "object", "properties": {"city": {"type": "string", "default": "Oslo"}}},
        "lines": {"type": "array", "items": {"$ref": "#/$defs/line"}},
    },
    "$defs": {"line": {"type": "object", "properties": {"count": {"default": 1}}}},
}


def fits(schema: dict[str, Any], args: Any) -> dict[str, Any]:
    return checked(Schema(closed(schema)), args)


def faults(schema: dict[str, Any], args: Any) -> list[str]:
    with pytest.raises(InvalidArgs) as refused:
        fits(schema, args)
    return [fault["pointer"] for fault in refused.value.extra["errors"]]


def test_defaults_are_filled_everywhere_before_anything_is_hashed() -> None:
    args = {"id": 7, "to": {}, "lines": [{}, {"count": 2}]}
    assert fits(SCHEMA, args) == {
        "id": 7,
        "active": False,
        "to": {"city": "Oslo"},
        "lines": [{"count": 1}, {"count": 2}],
    }
    assert args == {"id": 7, "to": {}, "lines": [{}, {"count": 2}]}


@given(
    *[
        st.fixed_dictionaries(
            {"id": st.sampled_from([1, 1.0, 2, 2.0])},
            optional={
                "active": st.booleans(),
                "to": st.fixed_dictionaries(
                    {}, optional={"city": st.sampled_from(["Oslo", "Rome"])}
                ),
            },
        )
    ]
    * 2
)
def test_equal_after_validation_is_the_same_as_equal_digest(
    a: dict[str, Any], b: dict[str, Any]
) -> None:
    one, other = fits(SCHEMA, a), fits(SCHEMA, b)
    assert (one == other) == (fingerprint(canonical(one)) == fingerprint(canonical(other)))


@pytest.mark.parametrize("args", ['{"id":7}', None, [], 7, True])
def test_args_that_are_not_an_object_are_refused(args: Any) -> None:
    """Case A9."""
    assert faults(SCHEMA, args) == ["/args"]


def test_text_is_never_taken_for_a_number() -> None:
    assert faults(SCHEMA, {"id": "7"}) == ["/args/id"]


def test_every_fault_has_its_pointer() -> None:
    found = faults(SCHEMA, {"active": 1, "to": {"city": 3}, "lines": [{}, 4], "x/y": 1})
    assert sorted(found) == [
        "/args/active",
        "/args/id",
        "/args/lines/1",
        "/args/to/city",
        "/args/x~1y",
    ]


def test_at_most_twenty_faults_are_listed() -> None:
    assert len(faults(SCHEMA, {"id": 1, "lines": list(range(100))})) == 20


def test_a_huge_wrong_value_is_not_repeated_in_the_answer() -> None:
    with pytest.raises(InvalidArgs) as refused:
        fits(SCHEMA, {"id": "x" * 100_000})
    assert len(refused.value.detail) < 1000


def test_types_survive_validation() -> None:
    args = {"a": 1.0, "b": None, "c": [True, {"d": 2**53 - 1}], "e": "1"}
    assert canonical(fits({"additionalProperties": True}, args)) == canonical(args)
    assert type(fits({"additionalProperties": True}, args)["a"]) is float


def test_unknown_fields_are_refused_unless_the_schema_welcomes_them() -> None:
    assert faults({"properties": {"a": {}}}, {"b": 1}) == ["/args/b"]
    assert fits({"properties": {"a": {}}, "additionalProperties": True}, {"b": 1}) == {"b": 1}
    assert fits({"patternProperties": {"^x-": {}}}, {"x-a": 1}) == {"x-a": 1}


def test_fields_named_by_a_part_of_the_schema_are_known() -> None:
    schema = {
        "allOf": [{"$ref": "#/$defs/who"}],
        "properties": {"b": {}},
        "$defs": {"who": {"properties": {"a": {"default": 3}}}},
    }
    assert fits(schema, {"b": 1}) == {"a": 3, "b": 1}
    assert faults(schema, {"a": 1, "c": 1}) == ["/args/c"]


def test_a_schema_that_refers_to_itself_ends_with_the_value() -> None:
    schema = {
        "properties": {"node": {"$ref": "#/$defs/node"}},
        "$defs": {"node": {"properties": {"n": {"default": 0}, "next": {"$ref": "#/$defs/node"}}}},
    }
    assert fits(schema, {"node": {"next": {}}}) == {"node": {"n": 0, "next": {"n": 0}}}


@pytest.mark.parametrize(
    "loop", [{"$ref": "#"}, {"allOf": [{"$ref": "#"}]}, {"not": {"$ref": "#"}}]
)
def test_a_schema_that_only_refers_to_itself_is_refused(loop: dict[str, Any]) -> None:
    with pytest.raises(DefinitionError, match="leads to itself"):
        Schema(loop)


ARGS: dict[str, Any] = {"properties": {"a": {}, "b": {}}}


def key_of(text: str, **args: Any) -> str:
    return Identity(text, ARGS, "effect key").of(args)


@pytest.mark.parametrize("value", [None, "", "  ", "\u00a0", [], {}])
def test_an_empty_part_never_makes_a_key(value: Any) -> None:
    """Case C101: an empty key would be no key, without a word."""
    with pytest.raises(InvalidArgs) as refused:
        key_of("refund:{args.a}", a=value)
    assert refused.value.extra["errors"][0]["pointer"] == "/args/a"


def test_a_missing_part_never_makes_a_key() -> None:
    """Case C101."""
    with pytest.raises(InvalidArgs, match="/args/a is empty or missing"):
        key_of("refund:{args.a}", b=1)


def test_keys_are_normalised_text() -> None:
    assert key_of("é:{args.a}", a="e\u0301") == key_of("e\u0301:{args.a}", a="é") == "é:é"


@pytest.mark.parametrize(("value", "text"), [(1, "1"), (1.0, "1"), (True, "true"), ("1", "1")])
def test_one_number_gives_one_key(value: Any, text: str) -> None:
    assert key_of("k:{args.a}", a=value) == f"k:{text}"


@given(*[st.tuples(*[st.text(":%/-ab", min_size=1)] * 2)] * 2, st.sampled_from([":", "-", "/x/"]))
def test_different_parts_never_give_one_key(
    one: tuple[str, str], other: tuple[str, str], mark: str
) -> None:
    text = "{args.a}" + mark + "{args.b}"
    same = key_of(text, a=one[0], b=one[1]) == key_of(text, a=other[0], b=other[1])
    assert same == (one == other)


@pytest.mark.parametrize(
    "text", ["{args.a}{args.b}", "{args.a}x{args.b}", "", "{args.c}", "{args}", "{saga.id}"]
)
def test_an_identity_that_could_be_confused_is_refused(text: str) -> None:
    with pytest.raises(DefinitionError):
        Identity(text, ARGS, "effect key")
