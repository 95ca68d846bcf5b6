"""Statements as the program writes them (text with `%s` or `%(name)s`, and its values), and what
they come to."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import psycopg
from psycopg.adapt import AdaptersMap
from psycopg.types.datetime import TimestamptzLoader
from psycopg.types.json import JsonbLoader

Params = Sequence[Any] | dict[str, Any]
Statement = tuple[str, Params]

_PLACEHOLDER = re.compile(r"%(?:\((\w+)\)s|(s)|(%)|)")


@dataclass(frozen=True, slots=True)
class Found:
    """What one statement came to: its rows as named tuples, or how many rows it touched."""

    rows: list[Any]
    count: int


@dataclass(slots=True, eq=False)
class Coming:
    """Statements that are under way; `found` is there once they have been heard."""

    statements: Sequence[Statement]
    found: list[Found] | None = None
    # For each result to come: a statement's text, and whether it is only about preparing that.
    sent: list[tuple[str, bool]] = field(default_factory=list)


class Adapting:
    """psycopg's adapters of a connection, but jsonb parsed: Django has its fields parse it."""

    def __init__(self, connection: psycopg.Connection[Any]) -> None:
        self.connection = connection
        self.adapters = AdaptersMap(connection.adapters)
        self.adapters.register_loader("jsonb", JsonbLoader)
        self.adapters.register_loader("timestamptz", TimestamptzLoader)


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
