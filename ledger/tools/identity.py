"""Effect keys and resources: a template over the args that never yields an empty identity."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

from ledger.errors import InvalidArgs
from ledger.jsontext import pointer
from ledger.keys import identity_text
from ledger.tools.faults import DefinitionError
from ledger.tools.placeholders import ABSENT, Placeholder, Template, as_text, check, template

# An index of Postgres holds 2,704 bytes, and the key of a repeat is a little longer.
MAX_BYTES = 1_000


class Identity:
    """`refund:{args.payment_id}`, checked. Two different sets of values never give one text."""

    def __init__(self, text: str, args_schema: dict[str, Any], what: str) -> None:
        self.text = text
        self.what = what
        self._template: Template = template(text)
        if not text.strip():
            raise DefinitionError(f"an empty {what} would make every step the same")
        check(self._template, args_schema, result=False, identity=True)
        self._reserved = _separators(self._template, what)

    def __repr__(self) -> str:
        return f"Identity({self.text!r})"

    def of(self, args: dict[str, Any]) -> str:
        """The NFC text for these args; InvalidArgs when a part of it is missing or empty."""
        text = identity_text(self._template.filled({"args": args}, self._part))
        if (size := len(text.encode())) > MAX_BYTES:
            first = next(part for part in self._template.parts if isinstance(part, Placeholder))
            detail = (
                f"makes the tool's {self.what} {size:,} bytes long, and it may have {MAX_BYTES:,}"
            )
            raise self._refused(pointer(first.path), detail)
        return text

    def _part(self, placeholder: Placeholder, value: Any) -> str:
        where = pointer(placeholder.path)
        if value is ABSENT or value is None or (isinstance(value, str) and not value.strip()):
            raise self._refused(where, f"is empty or missing, and the tool's {self.what} needs it")
        if isinstance(value, dict | list):
            raise self._refused(where, f"is not a single value, and the {self.what} needs one")
        written = as_text(placeholder, value)
        return "".join(f"%{ord(c):02X}" if c in self._reserved else c for c in written)

    @staticmethod
    def _refused(where: str, detail: str) -> InvalidArgs:
        return InvalidArgs(f"{where} {detail}.", errors=[{"pointer": where, "detail": detail}])


def _separators(found: Template, what: str) -> frozenset[str]:
    # With one placeholder nothing can be confused. With more, the punctuation between them is
    # percent-encoded inside values, so that ("1:2", "3") and ("1", "2:3") stay apart.
    places = [i for i, part in enumerate(found.parts) if isinstance(part, Placeholder)]
    reserved: set[str] = set()
    for first, second in pairwise(places):
        between = "".join(p for p in found.parts[first + 1 : second] if isinstance(p, str))
        # Only ASCII punctuation: NFC may change the rest.
        marks = {c for c in between if c.isascii() and not c.isalnum()}
        if not marks:
            raise DefinitionError(
                f"two placeholders of the {what} need a mark such as ':' or '/' between them"
            )
        reserved |= marks
    return frozenset(reserved | {"%"}) if reserved else frozenset()
