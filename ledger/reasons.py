"""What people give as their reason: kept for ever, so it must say something. Pure."""

from __future__ import annotations

import unicodedata

from ledger.errors import InvalidArgs

MAX_CHARS = 2000
# Letters that nobody can see: Hangul fillers, and the empty Braille pattern.
_BLANKS = frozenset("\u115f\u1160\u3164\uffa0\u2800")
# Letters, digits, punctuation and symbols; not marks, spaces, controls or format characters.
_VISIBLE = frozenset("LNPS")


def is_said(text: str) -> bool:
    """Whether a person can see anything in a text: not only blanks, marks and zero widths."""
    return any(
        unicodedata.category(character)[0] in _VISIBLE and character not in _BLANKS
        for character in text
    )


def reason_fault(text: str) -> str:
    """Why a text is no reason, or ''. The same rule at every door."""
    if not is_said(text):
        return "must not be empty: say something that can be read"
    if len(text) > MAX_CHARS:
        return f"must have at most {MAX_CHARS} characters"
    if "\0" in text:
        return "must not contain NUL"
    return ""


def needed(text: str, field: str = "reason", why: str = "it is kept in the ledger") -> str:
    """The reason without blanks around it. Raises InvalidArgs."""
    given = text.strip()
    if fault := reason_fault(given):
        raise InvalidArgs(
            f"A reason is needed; {why}. `{field}` {fault}.",
            errors=[{"pointer": f"/{field}", "detail": fault}],
        )
    return given
