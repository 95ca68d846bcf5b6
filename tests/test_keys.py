"""Identity: canonical text, digests, keys, differences, lookalikes (design section 4)."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ledger.backoff import MAX_RETRY_AFTER_S, delay_s
from ledger.errors import InvalidArgs
from ledger.keys import (
    canonical,
    differing_paths,
    direction_key,
    downstream_key,
    fingerprint,
    identity_text,
    parse_json,
    skeleton,
)
from ledger.states import Direction

JCS = Path(__file__).parent / "data" / "jcs"
SAFE = 2**53 - 1

json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-SAFE, SAFE)
    | st.floats(allow_nan=False, allow_infinity=False).filter(
        lambda number: not SAFE < abs(number) < 1e21
    )
    | st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00")),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00")),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


@pytest.mark.parametrize("vector", sorted(p.name for p in (JCS / "input").iterdir()))
def test_rfc_8785_vectors_come_out_byte_for_byte(vector: str) -> None:
    text = canonical(parse_json((JCS / "input" / vector).read_bytes()))
    assert text.encode() == (JCS / "output" / vector).read_bytes().rstrip(b"\n")


@pytest.mark.parametrize("written", [b"1", b"1.0", b"1e0", b"10E-1", b"0.1e1"])
def test_one_number_has_one_text_however_it_is_written(written: bytes) -> None:
    """Case C86, vector 1 / 1.0 / 1e0."""
    assert canonical(parse_json(written)) == "1"


@pytest.mark.parametrize("written", [b"-0", b"-0.0", b"0", b"0e5"])
def test_minus_zero_is_zero(written: bytes) -> None:
    """Vector -0 / -0.0."""
    assert canonical(parse_json(written)) == "0"


def test_trailing_zeros_do_not_matter() -> None:
    """Vector 0.10."""
    assert canonical(parse_json(b"0.10")) == "0.1"


def test_keys_are_ordered_by_utf_16_units() -> None:
    """Vector: key order U+FB33 vs U+1F600."""
    assert canonical({"\ufb33": 1, "\U0001f600": 2}) == '{"\U0001f600":2,"\ufb33":1}'


def test_two_spellings_of_one_letter_stay_two_texts() -> None:
    """Vector: NFC vs NFD."""
    assert canonical("\u00e9") != canonical("e\u0301")


@pytest.mark.parametrize(
    "value", [float("nan"), float("inf"), 2**53, "\ud800", {1: "a"}, {1: "a", "1": "b"}, object()]
)
def test_what_has_no_canonical_form_is_invalid_args(value: Any) -> None:
    """Cases C89, C90, C91, for values that came from Python and not through the door."""
    with pytest.raises(InvalidArgs):
        canonical(value)


@given(json_values)
def test_canonical_text_reads_back_as_the_same_canonical_text(value: Any) -> None:
    text = canonical(value)
    assert canonical(parse_json(text.encode())) == text
    assert differing_paths(json.loads(text), value) == []


def test_fingerprint_is_sha_256_of_the_text() -> None:
    assert fingerprint("{}") == "44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a"


def test_downstream_key_is_a_pure_function_of_the_step() -> None:
    """Case H9."""
    assert downstream_key("s", "a", "t", "{}") == downstream_key("s", "a", "t", "{}")


def test_downstream_key_parts_cannot_run_into_each_other() -> None:
    keys = {
        downstream_key("s", "ab", "c", "{}"),
        downstream_key("s", "a", "bc", "{}"),
        downstream_key("sa", "b", "c", "{}"),
        downstream_key('s","a', "b", "c", "{}"),
        downstream_key("s", 'a","b', "c", "{}"),
    }
    assert len(keys) == 5


def test_each_direction_and_alternative_has_its_own_key() -> None:
    keys = {direction_key("k", direction, n) for direction in Direction for n in range(3)}
    assert len(keys) == 9
    assert direction_key("k", Direction.FORWARD) == "k"
    assert direction_key("k", Direction.COMPENSATE) == "comp:k"
    assert direction_key("k", Direction.CORRECT) == "corr:k"
    assert direction_key("k", Direction.FORWARD, 2) == "alt2:k"
    assert direction_key("k", Direction.COMPENSATE, 1) == "comp:alt1:k"


def test_differences_are_named_by_json_pointer() -> None:
    a = {"amount": 1, "lines": [1, {"sku": "x"}], "a/b": 1, "same": [1]}
    b = {"amount": 2, "lines": [1, {"sku": "y"}, 3], "a~c": 1, "same": [1.0]}
    assert differing_paths(a, b) == ["/amount", "/a~0c", "/a~1b", "/lines/1/sku", "/lines/2"]


@pytest.mark.parametrize(("a", "b"), [(True, 1), (False, 0), (None, False), ("1", 1), ({}, [])])
def test_types_that_python_confuses_differ(a: Any, b: Any) -> None:
    assert differing_paths(a, b) == [""]
    assert differing_paths({"x": a}, {"x": b}) == ["/x"]


def test_at_most_fifty_differences_are_listed() -> None:
    assert len(differing_paths(list(range(200)), [])) == 50


@given(json_values, json_values)
def test_no_difference_means_the_same_fingerprint(a: Any, b: Any) -> None:
    assert (differing_paths(a, b) == []) == (canonical(a) == canonical(b))


def test_identity_text_makes_both_spellings_one() -> None:
    assert identity_text("e\u0301") == identity_text("\u00e9") == "\u00e9"


@pytest.mark.parametrize(
    ("text", "lookalike"),
    [
        ("paypal", "p\u0430yp\u0430l"),  # Cyrillic а
        ("modern", "modem"),
        ("order-1", "order-l"),
        ("O", "0"),
        ("paypal", "pay\u200bpal"),  # zero width space
        ("paypal", "pay\u00adpal"),  # soft hyphen
        ("\u00e9", "e\u0301"),
        ("\u0410", "A"),
    ],
)
def test_what_looks_the_same_has_the_same_skeleton(text: str, lookalike: str) -> None:
    assert text != lookalike
    assert skeleton(text) == skeleton(lookalike)


@pytest.mark.parametrize(("a", "b"), [("order:1", "order:2"), ("a", "b"), ("anna", "hanna")])
def test_what_looks_different_has_another_skeleton(a: str, b: str) -> None:
    assert skeleton(a) != skeleton(b)


@given(st.text())
def test_a_skeleton_is_its_own_skeleton(text: str) -> None:
    assert skeleton(skeleton(text)) == skeleton(text)


def test_backoff_stays_under_its_rising_ceiling() -> None:
    rng = Random(7)
    for attempt, ceiling in [(1, 0.5), (2, 1), (3, 2), (8, 60), (5000, 60)]:
        waits = [delay_s(attempt, rng=rng) for _ in range(300)]
        assert 0 <= min(waits) < ceiling * 0.1
        assert ceiling * 0.9 < max(waits) <= ceiling


def test_backoff_never_asks_before_the_target_wants() -> None:
    assert delay_s(1, rng=Random(1), retry_after_s=30) == 30
    assert delay_s(1, rng=Random(1), retry_after_s=10**9) == MAX_RETRY_AFTER_S
    assert delay_s(1, rng=Random(1), retry_after_s=-5) >= 0


def test_backoff_counts_attempts_from_one() -> None:
    with pytest.raises(ValueError, match="from 1"):
        delay_s(0, rng=Random(1))
