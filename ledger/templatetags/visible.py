"""Text that somebody else wrote, shown so that it cannot pretend to be something else.

Characters that have no picture of their own, or that move or hide their neighbours, are
replaced by their code point in a box (cases G1 and G3): controls, bidirectional marks,
zero-width characters, fillers, odd spaces, private use, lone surrogates.
"""

from __future__ import annotations

import re

from django import template
from django.utils.html import escape
from django.utils.safestring import SafeString, mark_safe

from ledger.masking import redact
from ledger.oddities import ODD, code_of, name_of

register = template.Library()

_BREAKS = {"\n": "⏎", "\t": "⇥"}


def is_plain(text: str) -> bool:
    """Whether people see all of a text as it is: line breaks and tabs are no surprise."""
    return ODD.search(text.replace("\n", "").replace("\t", "")) is None


def _boxed(match: re.Match[str], *, keep_breaks: bool) -> str:
    character = match[0]
    if keep_breaks and character in _BREAKS:
        sign = f'<span class="odd break" title="{name_of(character)}">{_BREAKS[character]}</span>'
        return sign + character
    return f'<span class="odd" title="{name_of(character)}">{code_of(character)}</span>'


def show(text: object, *, keep_breaks: bool = False) -> SafeString:
    """Escaped HTML of `text` with every odd character boxed.

    With `keep_breaks`, a line break or a tab gets a small sign and still breaks the line;
    without it, it is boxed like the others, so that one field can never look like two.
    """
    escaped = escape(redact(str(text)))
    boxed = ODD.sub(lambda match: _boxed(match, keep_breaks=keep_breaks), escaped)
    return mark_safe(boxed)  # noqa: S308 - escaped above; only our own spans are added


@register.filter
def visible(text: object) -> SafeString:
    """One line of foreign text: names, reasons, identifiers."""
    return show(text)


@register.filter
def visible_block(text: object) -> SafeString:
    """Foreign text that may have lines: argument values, bodies, errors."""
    return show(text, keep_breaks=True)
