"""`Prefer` (RFC 7240): how long a caller would rather wait, and what it was given. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass

MAX_WAIT_S = 60
# Tokens, optionally with a value; parameters after `;` are skipped. Unknown ones are ignored,
# as RFC 7240 section 2 asks.
_ONE = re.compile(r"\s*([\w!#$%&'*+.^`|~-]+)\s*(?:=\s*(\"[^\"]*\"|[^\s,;]*))?[^,]*(?:,|$)")


@dataclass(frozen=True, slots=True)
class Preference:
    """`wait_s` is 0 for "do not wait"; never more than `MAX_WAIT_S`."""

    wait_s: int = 0
    respond_async: bool = False

    def applied(self, *, waited: bool) -> dict[str, str]:
        """The `Preference-Applied` header for what was really done; empty for nothing."""
        done = ["respond-async"] if self.respond_async else []
        if waited:
            done.append(f"wait={self.wait_s}")
        return {"Preference-Applied": ", ".join(done), "Vary": "Prefer"} if done else {}


def parse(header: str) -> Preference:
    """Read a `Prefer` header. What is not understood is no preference; the first one wins."""
    if not header:
        return Preference()
    found: dict[str, str] = {}
    for name, value in _ONE.findall(header[:1000]):
        found.setdefault(name.lower(), value.strip('"'))
    wait = found.get("wait", "")
    seconds = int(wait) if wait.isascii() and wait.isdigit() and len(wait) < 10 else 0
    return Preference(min(seconds, MAX_WAIT_S), "respond-async" in found)
