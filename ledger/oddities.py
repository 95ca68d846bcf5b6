"""Characters that have no picture of their own, or that move or hide their neighbours. Pure.

Controls, bidirectional marks, zero-width characters, fillers, odd spaces, private use, lone
surrogates: shown as they are, one field could look like two, or like another (cases G1, G3).
"""

from __future__ import annotations

import re
import unicodedata

# Unicode's Default_Ignorable_Code_Point beyond the categories below, plus two letters and a
# symbol that are drawn as nothing: Hangul fillers and the empty Braille pattern.
_DRAWN_AS_NOTHING = "\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2800\u3164\ufe00-\ufe0f\uffa0"
ODD = re.compile(
    "[\x00-\x1f\x7f-\xa0\xad\u0600-\u0605\u061c\u06dd\u070f\u1680\u2000-\u200f\u2028-\u202f\u205f-\u206f"
    f"{_DRAWN_AS_NOTHING}\u3000\ufeff\ufff0-\uffff\ue000-\uf8ff\ud800-\udfff"
    "\U0001d173-\U0001d17a\U000e0000-\U0010ffff]"
)
# Words for controls that have no name of their own in the standard.
_CONTROLS = {"\x00": "NULL", "\x07": "BELL", "\x08": "BACKSPACE", "\x1b": "ESCAPE"}


def code_of(character: str) -> str:
    """`U+202E`."""
    return f"U+{ord(character):04X}"


def name_of(character: str) -> str:
    """The code point with its Unicode name, as a person would look it up."""
    fallback = _CONTROLS.get(character, "CONTROL CHARACTER")
    return f"{code_of(character)} {unicodedata.name(character, fallback)}"


def in_plain(text: object) -> str:
    """One line of plain text with every odd character as `[U+202E]`, breaks included."""
    return ODD.sub(lambda match: f"[{code_of(match[0])}]", str(text))
