"""The measured vectors of canonical JSON: what the door says, and why jsonb is never asked.

Each row: what Postgres makes of the text, and what the ledger makes of it. The two differ in
nearly every row, so digests are over the canonical text and never over a jsonb round trip.
"""

from __future__ import annotations

import pytest
from django.db import DatabaseError, connection, transaction

from ledger.errors import InvalidArgs, InvalidJson, SagaError
from ledger.keys import canonical, fingerprint, parse_json
from ledger.storage import sqlstate

pytestmark = pytest.mark.django_db

UNTRANSLATABLE = "22P05"
NOT_JSON = "22P02"
TOO_DEEP = "54001"
DEEP = "[" * 100_000 + "]" * 100_000


def in_postgres(text: str) -> str:
    """What jsonb gives back for a JSON text."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT %s::jsonb::text", [text])
        return str(cursor.fetchone()[0])


def refused_by_postgres(text: str) -> str:
    with pytest.raises(DatabaseError) as refused, transaction.atomic():
        in_postgres(text)
    return sqlstate(refused.value)


def are_equal_in_postgres(one: str, other: str) -> bool:
    with connection.cursor() as cursor:
        cursor.execute("SELECT %s::jsonb = %s::jsonb", [one, other])
        return bool(cursor.fetchone()[0])


def digest(text: str) -> str:
    return fingerprint(canonical(parse_json(text.encode())))


# (vector, JSON text, its canonical form, what jsonb gives back)
READ = [
    ("1 / 1.0 / 1e0", "1", "1", "1"),
    ("1 / 1.0 / 1e0", "1.0", "1", "1.0"),
    ("1 / 1.0 / 1e0", "1e0", "1", "1"),
    ("-0 / -0.0", "-0", "0", "0"),
    ("-0 / -0.0", "-0.0", "0", "0.0"),
    ("0.10", "0.10", "0.1", "0.10"),
    ("key order", '{"\ufb33":1,"\U0001f600":2}', '{"\U0001f600":2,"\ufb33":1}', None),
    ("key order", '{"bb":1,"a":2,"B":3}', '{"B":3,"a":2,"bb":1}', '{"B": 3, "a": 2, "bb": 1}'),
    ("key order", '{"b":1,"aa":2}', '{"aa":2,"b":1}', '{"b": 1, "aa": 2}'),
]


@pytest.mark.parametrize(("vector", "text", "form", "jsonb"), READ)
def test_one_value_has_one_text(vector: str, text: str, form: str, jsonb: str | None) -> None:
    """Vectors 1 / 1.0 / 1e0, -0 / -0.0, 0.10, key order; case C86."""
    assert canonical(parse_json(text.encode())) == form, vector
    assert digest(text) == digest(form)
    if jsonb is not None:
        assert in_postgres(text) == jsonb


def test_jsonb_orders_keys_by_length_and_bytes_and_so_is_no_canonical_form() -> None:
    """Vector: key order U+FB33 vs U+1F600. JCS counts UTF-16 units, jsonb bytes of UTF-8."""
    text = '{"\U0001f600":2,"\ufb33":1}'
    assert canonical(parse_json(text.encode())) == text
    assert in_postgres(text) == '{"\ufb33": 1, "\U0001f600": 2}'


def test_numbers_that_jsonb_calls_equal_have_one_digest() -> None:
    """Vector 1 / 1.0 / 1e0, case C86: jsonb keeps the scale, and still says equal."""
    assert are_equal_in_postgres('{"a":1}', '{"a":1.0}')
    assert in_postgres('{"a":1}') != in_postgres('{"a":1.0}')
    assert digest('{"a":1}') == digest('{"a":1.0}') == digest('{"a":1e0}') == digest('{"a":10E-1}')


# (vector, JSON text, the refusal, the SQLSTATE of jsonb or None where it takes the text)
REFUSED = [
    ("1e400", '{"a":1e400}', InvalidArgs, None),
    ("NaN", '{"a":NaN}', InvalidArgs, NOT_JSON),
    ("NaN", '{"a":Infinity}', InvalidArgs, NOT_JSON),
    ("9007199254740993", '{"a":9007199254740993}', InvalidArgs, None),
    ("9007199254740993", '{"a":9007199254740992}', InvalidArgs, None),
    ("5000-digit int", '{"a":' + "9" * 5000 + "}", InvalidArgs, None),
    ("dup keys", '{"a":1,"a":2}', InvalidArgs, None),
    ("lone surrogate", '{"a":"\\ud800"}', InvalidArgs, NOT_JSON),
    ("NUL", '{"a":"\\u0000"}', InvalidArgs, UNTRANSLATABLE),
    ("nesting 100 k", DEEP, InvalidJson, TOO_DEEP),
]


@pytest.mark.parametrize(
    ("vector", "text", "refusal", "state"), REFUSED, ids=[row[1][:24] for row in REFUSED]
)
def test_what_two_readers_could_take_differently_is_refused_before_any_digest(
    vector: str, text: str, refusal: type[SagaError], state: str | None
) -> None:
    """Vectors 1e400, NaN, 9007199254740993, 5000-digit int, dup keys, lone surrogate, NUL,
    nesting 100 k; cases C89, C90, C91, C92, C93 (the edge)."""
    with pytest.raises(refusal):
        parse_json(text.encode())
    if state is None:
        in_postgres(text)  # the database would have taken it, so the door has to refuse it
    else:
        assert refused_by_postgres(text) == state, vector


def test_jsonb_would_have_kept_the_last_of_two_equal_keys() -> None:
    """Vector: dup keys, case C92: approver and executor could have read different values."""
    assert in_postgres('{"amount":1,"amount":2}') == '{"amount": 2}'


def test_two_neighbours_beyond_2_53_would_have_been_one_number() -> None:
    """Vector 9007199254740993, case C89: as doubles they are equal; as digests neither exists."""
    assert float(9007199254740992) == float(9007199254740993)
    assert canonical(parse_json(b"9007199254740991")) == "9007199254740991"
    assert canonical(parse_json(b'"9007199254740993"')) == '"9007199254740993"'


def test_two_spellings_of_one_letter_have_two_digests() -> None:
    """Vector: NFC vs NFD. Strings are compared as given; only effect keys are normalised."""
    assert digest('"\u00e9"') != digest('"e\u0301"')
    assert not are_equal_in_postgres('"\u00e9"', '"e\u0301"')


def test_a_dict_with_one_key_in_two_types_has_no_canonical_form() -> None:
    """Vector: dict {1, "1"}. It cannot come through the door, only out of Python code."""
    with pytest.raises(InvalidArgs):
        canonical({1: "a", "1": "b"})
