"""Errors of targets as sentences: what is said, and that nothing is lost by it."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ledger.spoken import Spoken, spoken, telling

STRIPE = '{"error": {"code": "card_declined", "message": "Your card was declined."}}'


@pytest.mark.parametrize(
    ("text", "words", "raw"),
    [
        ("403: this key may not void charges", "403: this key may not void charges", ""),
        ("", "", ""),
        (f"402 {STRIPE}", "402 Payment Required, “Your card was declined.”", STRIPE),
        (
            f"step charge failed: 402 {STRIPE}. None is left.",
            "step charge failed: 402 Payment Required, “Your card was declined.”. None is left.",
            STRIPE,
        ),
        (
            '409 {"type": "about:blank", "title": "Bad", "detail": "Say an amount."}',
            "409 Conflict, “Say an amount.”",
            '{"type": "about:blank", "title": "Bad", "detail": "Say an amount."}',
        ),
        (
            '400 {"detail": [{"loc": ["body"], "msg": "Field required"}]}',
            "400 Bad Request, “Field required”",
            '{"detail": [{"loc": ["body"], "msg": "Field required"}]}',
        ),
        ('499 {"error": "gone"}', "499, “gone”", '{"error": "gone"}'),
        (
            '400 {"code": 7}',
            "400 Bad Request, an answer without a sentence in it",
            '{"code": 7}',
        ),
        # A body that was cut is JSON no more, and says what it says all the same.
        (
            '400 {"error": {"message": "No such \\"thing\\"", "param": "na…',
            '400 Bad Request, “No such "thing"”',
            '{"error": {"message": "No such \\"thing\\"", "param": "na…',
        ),
        ("the set {a, b} is [not] JSON", "the set {a, b} is [not] JSON", ""),
        ('broken {"a": ', 'broken {"a": ', ""),
        ('{"message": "No."}', "“No.”", '{"message": "No."}'),
    ],
)
def test_an_error_is_told_as_a_sentence_with_its_json_beside_it(
    text: str, words: str, raw: str
) -> None:
    assert spoken(text) == Spoken(words, raw)


@given(st.text(alphabet='{}[]":, 42aé\\n…', max_size=60))
def test_any_text_is_told_and_what_is_taken_out_is_handed_back(text: str) -> None:
    told = spoken(text)
    assert told.raw in text
    if not told.raw:
        assert told.words == text


def test_an_answer_of_nothing_but_braces_costs_little() -> None:
    deep = "[" * 200_000
    assert spoken(deep) == Spoken(deep)
    assert spoken("{" * 200_000).raw == ""


def test_the_text_of_an_outcome_is_found_by_what_a_person_wants_first() -> None:
    assert telling({"outcome": "failed", "error": "no", "retryable": False}) == "no"
    assert telling({"code": "failed", "detail": "no", "error": "other"}) == "no"
    assert telling("no") == "no"
    assert telling({"outcome": "done", "result": {}}) is None
    assert telling(json.loads("null")) is None
