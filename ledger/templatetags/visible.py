"""Text that somebody else wrote, shown so that it cannot pretend to be something else.

Characters that have no picture of their own, or that move or hide their neighbours, are
replaced by their code point in a box (cases G1 and G3): controls, bidirectional marks,
zero-width characters, fillers, odd spaces, private use, lone surrogates.
"""

from __future__ import annotations

import re
import unicodedata

from django import template
from django.utils.html import escape
from django.utils.safestring import SafeString, mark_safe

register = template.Library()

# Unicode's Default_Ignorable_Code_Point beyond the categories below, plus two letters and a
# symbol that are drawn as nothing: Hangul fillers and the empty Braille pattern.
_DRAWN_AS_NOTHING = "\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2800\u3164\ufe00-\ufe0f\uffa0"
_ODD = re.compile(
    "[\x00-\x1f\x7f-\xa0\xad\u0600-\u0605\u061c\u06dd\u070f\u1680\u2000-\u200f\u2028-\u202f\u205f-\u206f"
    f"{_DRAWN_AS_NOTHING}\u3000\ufeff\ufff0-\uffff\ue000-\uf8ff\ud800-\udfff"
    "\U0001d173-\U0001d17a\U000e0000-\U0010ffff]"
)
_BREAKS = {"\n": "⏎", "\t": "⇥"}
# Words for controls that have no name of their own in the standard.
_CONTROLS = {"\x00": "NULL", "\x07": "BELL", "\x08": "BACKSPACE", "\x1b": "ESCAPE"}


def is_plain(text: str) -> bool:
    """Whether people see all of a text as it is: line breaks and tabs are no surprise."""
    return _ODD.search(text.replace("\n", "").replace("\t", "")) is None


def name_of(character: str) -> str:
    """The code point with its Unicode name, as a person would look it up."""
    fallback = _CONTROLS.get(character, "CONTROL CHARACTER")
    return f"U+{ord(character):04X} {unicodedata.name(character, fallback)}"


def _boxed(match: re.Match[str], *, keep_breaks: bool) -> str:
    character = match[0]
    if keep_breaks and character in _BREAKS:
        sign = f'<span class="odd break" title="{name_of(character)}">{_BREAKS[character]}</span>'
        return sign + character
    code = f"U+{ord(character):04X}"
    return f'<span class="odd" title="{name_of(character)}">{code}</span>'


def show(text: object, *, keep_breaks: bool = False) -> SafeString:
    """Escaped HTML of `text` with every odd character boxed.

    With `keep_breaks`, a line break or a tab gets a small sign and still breaks the line;
    without it, it is boxed like the others, so that one field can never look like two.
    """
    escaped = escape(str(text))
    boxed = _ODD.sub(lambda match: _boxed(match, keep_breaks=keep_breaks), escaped)
    return mark_safe(boxed)  # noqa: S308 - escaped above; only our own spans are added


@register.filter
def visible(text: object) -> SafeString:
    """One line of foreign text: names, reasons, identifiers."""
    return show(text)


@register.filter
def visible_block(text: object) -> SafeString:
    """Foreign text that may have lines: argument values, bodies, errors."""
    return show(text, keep_breaks=True)
