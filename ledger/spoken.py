"""What a target said, in words: targets answer errors as JSON, and people read sentences. Pure.

Nothing is lost by it: the JSON itself is handed back beside the words.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

# Where answers of errors have their sentence (Stripe, AWS, RFC 9457, OAuth, pydantic and others),
# in the order of what a person wants first.
_SAYING_KEYS = (
    *("message", "Message", "detail", "msg", "error_description", "error", "Error", "errors"),
    *("title", "reason", "description"),
)
# What the engine keeps of an outcome or an error, in the same order.
_TELLING_KEYS = ("detail", "error", "reason")
# A sentence of an answer whose end was cut off (verdicts.MAX_ERROR_CHARS): it is no JSON any more.
_CUT = re.compile(
    r'"(?:message|detail|error_description)"\s*:\s*("(?:[^"\\]|\\.)*")', re.IGNORECASE
)
_STATUS = re.compile(r"\b([1-5]\d\d)\s*$")
# Braces that are looked at as the beginning of JSON; a text of nothing but braces costs no more.
_MOST_BRACES = 8


@dataclass(frozen=True, slots=True)
class Spoken:
    """`words` is one text without JSON, `raw` the JSON that was in it as it came, or ''."""

    words: str
    raw: str = ""


def telling(told: Any) -> str | None:
    """The text in what the engine keeps of an outcome or an error; None when it has none."""
    if isinstance(told, str):
        return told
    if not isinstance(told, Mapping):
        return None
    return next((told[key] for key in _TELLING_KEYS if isinstance(told.get(key), str)), None)


def is_told_in(sentence: str, told: Any) -> bool:
    """Whether a sentence that is shown anyhow ends with what is told here: once is enough."""
    text = telling(told)
    return bool(text) and sentence.endswith(f": {text}")


def counted(count: int, noun: str) -> str:
    """`1 saga`, `2 sagas`."""
    return f"{count} {noun}" + ("" if count == 1 else "s")


def spoken(text: str) -> Spoken:
    """An error as a sentence: `402 {"error": {"message": "No."}}` is 402 Payment Required, “No.”"""
    found = _json_in(text)
    if found is None:
        return Spoken(text)
    start, end, sentence = found
    before = _STATUS.sub(_with_phrase, text[:start].rstrip())
    said = f"“{sentence}”" if sentence else "an answer without a sentence in it"
    comma = ", " if before[-1:].isalnum() else " "
    return Spoken(f"{before}{comma}{said}{text[end:]}".strip(" "), text[start:end])


def _with_phrase(match: re.Match[str]) -> str:
    try:
        return f"{match[1]} {HTTPStatus(int(match[1])).phrase}"
    except ValueError:
        return match[0]


def _json_in(text: str) -> tuple[int, int, str] | None:
    """The first JSON object or list in a text: where it is, and its sentence or ''."""
    decoder = json.JSONDecoder()
    for brace in list(re.finditer(r'[{\[](?=\s*["{\[\]}])', text))[:_MOST_BRACES]:
        try:
            value, end = decoder.raw_decode(text, brace.start())
        except RecursionError:
            continue
        except ValueError:
            if cut := _CUT.search(text, brace.start()):
                return brace.start(), len(text), _sentence(json.loads(cut[1], strict=False))
            continue
        return brace.start(), end, _sentence(value)
    return None


def _sentence(value: Any, depth: int = 0) -> str:
    """The first sentence in an answer; '' when there is none."""
    if isinstance(value, str):
        return value.strip()
    if depth > 4:
        return ""
    inner: list[Any] = []
    if isinstance(value, list):
        inner = value[:3]
    elif isinstance(value, dict):
        inner = [value[key] for key in _SAYING_KEYS if key in value]
    return next((said for one in inner if (said := _sentence(one, depth + 1))), "")
