"""Statements as the program writes them: text with `%s` or `%(name)s`, and its values."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache
from typing import Any

import psycopg

Params = Sequence[Any] | dict[str, Any]
Statement = tuple[str, Params]

_PLACEHOLDER = re.compile(r"%(?:\((\w+)\)s|(s)|(%)|)")


@cache
def as_postgres_reads(sql: str) -> tuple[bytes, tuple[str, ...]]:
    """`%s` and `%(name)s` as `$1`; and which value each number stands for. Raises
    ProgrammingError for a lone percent sign.

    Never called with text from outside: every statement is a constant of the program.
    """
    order: list[str] = []

    def numbered(found: re.Match[str]) -> str:
        name, plain, percent = found.groups()
        if percent:
            return "%"
        if not name and not plain:
            raise psycopg.ProgrammingError(f"a lone % in {sql!r}: write %%")
        if plain or name not in order:
            order.append(name or "")
        return f"${order.index(name) + 1 if name else len(order)}"

    return _PLACEHOLDER.sub(numbered, sql).encode(), tuple(order)
