"""Statements to Postgres in one round trip: libpq's pipeline mode, with nothing around it.

A step is a dozen small statements, and most of a small statement's time is the way there and
back. psycopg's own pipeline sends BEGIN and COMMIT by themselves and spends 0.03 ms of CPU on
each cursor; here both travel with the statements, and a statement costs a third of that
(docs/decisions/0042-statements-travel-together.md). Values are adapted by psycopg.
"""

from __future__ import annotations

import itertools
import re
import select
from collections import namedtuple
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import psycopg
from psycopg import pq
from psycopg.adapt import AdaptersMap, PyFormat, Transformer
from psycopg.errors import error_from_result
from psycopg.types.datetime import TimestamptzLoader
from psycopg.types.json import JsonbLoader

Params = Sequence[Any] | dict[str, Any]
Statement = tuple[str, Params]
# A statement as it was given, as Postgres reads it, and its values.
Bound = tuple[str, bytes, list[Any]]

# SQLSTATEs of a prepared statement that the server no longer has, or can no longer run: it was
# deallocated (26000), or a migration changed its tables (0A000). Prepared anew, it runs.
STALE = frozenset({"26000", "0A000"})
# Prepared as everything else: parsed anew each time, the two cost 0.02 ms a transition.
_BEGIN: Bound = ("BEGIN", b"BEGIN", [])
_COMMIT: Bound = ("COMMIT", b"COMMIT", [])
_AROUND = frozenset({"BEGIN", "COMMIT"})
# Looked at for every result: plain numbers, found without asking an enum.
_BAD = int(pq.ConnStatus.BAD)
_SYNC = int(pq.ExecStatus.PIPELINE_SYNC)
_FATAL = int(pq.ExecStatus.FATAL_ERROR)
_TUPLES = int(pq.ExecStatus.TUPLES_OK)
_PLACEHOLDER = re.compile(r"%(?:\((\w+)\)s|(s)|(%)|)")
_CHANNEL = "_saga_channel"


@dataclass(frozen=True, slots=True)
class Found:
    """What one statement came to: its rows as named tuples, or how many rows it touched."""

    rows: list[Any]
    count: int


def channel(connection: psycopg.Connection[Any]) -> Channel:
    """The channel of this connection; it lives as long as the connection does."""
    found: Channel | None = getattr(connection, _CHANNEL, None)
    if found is None:
        found = Channel(connection)
        setattr(connection, _CHANNEL, found)
    return found


class Channel:
    """One connection's prepared statements. Used by one thread at a time, as the connection is."""

    def __init__(self, connection: psycopg.Connection[Any]) -> None:
        self._connection = connection
        self._pg = connection.pgconn
        self._names: dict[str, bytes] = {}
        self._preparing: dict[str, bytes] = {}
        self._numbers = itertools.count()
        self._shapes: dict[str, Callable[..., Any]] = {}
        self._adapt = Transformer(_Adapting(connection))
        self._poll = select.poll()
        self._poll.register(self._pg.socket, select.POLLIN)

    def run(self, statements: Sequence[Statement], *, commit: bool = False) -> list[Found]:
        """Run statements in order; with `commit`, end the transaction in the same trip.

        Begins a transaction when the connection is not in autocommit and not in one. The first
        error of Postgres is raised, and nothing after it was run. An error on the way closes
        the connection: nobody knows what was done.
        """
        bound = [self._bind(sql, params) for sql, params in statements]
        is_idle = self._pg.transaction_status == pq.TransactionStatus.IDLE
        if is_idle and not statements:
            return []
        try:
            begin = is_idle and not self._connection.autocommit
            self._pg.enter_pipeline_mode()
            sent = list(self._send([_BEGIN] * begin + bound + [_COMMIT] * commit))
            self._pg.pipeline_sync()
            self._push()
            results = list(self._results())
        except BaseException:
            self._connection.close()
            raise
        self._pg.exit_pipeline_mode()
        return self._understand(statements, sent, results, commit=commit)

    def _bind(self, sql: str, params: Params) -> Bound:
        text, order = _parsed(sql)
        if isinstance(params, dict):
            params = [params[name] for name in order]
        elif len(params) != len(order):
            raise psycopg.ProgrammingError(f"{len(order)} values are needed, not {len(params)}")
        formats = [PyFormat.TEXT] * len(params)
        return sql, text, list(self._adapt.dump_sequence(params, formats))

    def _send(self, bound: Sequence[Bound]) -> Iterator[tuple[str, bool]]:
        """Send everything; for each result to come, a statement's text, and whether what it
        answers is only that statement's preparation."""
        # Only what the server says it has prepared is used again: see `_understand`.
        preparing = self._preparing = {}
        for sql, text, values in bound:
            name = self._names.get(sql) or preparing.get(sql)
            if name is None:
                # Who looks at the wire shall see where a transaction ends. No name comes twice:
                # what is prepared anew may still be there under its old one.
                word = sql.encode() if sql in _AROUND else b"saga"
                name = preparing[sql] = b"%s_%d" % (word, next(self._numbers))
                self._pg.send_prepare(name, text)
                yield sql, True
            self._pg.send_query_prepared(name, values)
            yield sql, False

    def _push(self) -> None:
        """Hand everything to the kernel, reading meanwhile: else both sides could wait."""
        while self._pg.flush():
            self._poll.modify(self._pg.socket, select.POLLIN | select.POLLOUT)
            try:
                if any(event & select.POLLIN for _, event in self._poll.poll()):
                    self._pg.consume_input()
            finally:
                self._poll.modify(self._pg.socket, select.POLLIN)

    def _results(self) -> Iterator[pq.abc.PGresult]:
        """One result for each thing sent, up to the mark that ends the trip."""
        pg = self._pg
        while True:
            while pg.is_busy():
                self._poll.poll()
                pg.consume_input()
            result = pg.get_result()
            if result is None:
                if pg.status == _BAD:
                    raise psycopg.OperationalError(pg.get_error_message())
                continue
            status = result.status
            if status == _SYNC:
                return
            if status == _FATAL and pg.status == _BAD:
                raise error_from_result(result, encoding="utf-8")
            yield result

    def _understand(
        self,
        statements: Sequence[Statement],
        sent: list[tuple[str, bool]],
        results: list[pq.abc.PGresult],
        *,
        commit: bool,
    ) -> list[Found]:
        answers = []
        for (sql, is_preparation), result in zip(sent, results, strict=False):
            if result.status == _FATAL:
                raise self._error(result)
            if is_preparation:
                self._names[sql] = self._preparing[sql]
            elif sql not in _AROUND:
                answers.append(result)
        if commit and results[-1].command_status != b"COMMIT":
            raise psycopg.InternalError("the transaction had failed and was rolled back")
        return [
            self._load(sql, result) for (sql, _), result in zip(statements, answers, strict=True)
        ]

    def _error(self, result: pq.abc.PGresult) -> psycopg.Error:
        error = error_from_result(result, encoding="utf-8")
        if error.sqlstate in STALE:
            self._names.clear()
            self._shapes.clear()
        return error

    def _load(self, sql: str, result: pq.abc.PGresult) -> Found:
        if result.status != _TUPLES:
            return Found([], result.command_tuples or 0)
        shape = self._shapes.get(sql)
        if shape is None:
            names = [(result.fname(column) or b"").decode() for column in range(result.nfields)]
            row: Any = namedtuple("Row", names, rename=True)  # type: ignore[misc]  # noqa: PYI024
            shape = self._shapes[sql] = row._make
        self._adapt.set_pgresult(result)
        return Found(self._adapt.load_rows(0, result.ntuples, shape), result.ntuples)


class _Adapting:
    """psycopg's adapters of a connection, but jsonb parsed: Django has its fields parse it."""

    def __init__(self, connection: psycopg.Connection[Any]) -> None:
        self.connection = connection
        self.adapters = AdaptersMap(connection.adapters)
        self.adapters.register_loader("jsonb", JsonbLoader)
        self.adapters.register_loader("timestamptz", TimestamptzLoader)


@cache
def _parsed(sql: str) -> tuple[bytes, tuple[str, ...]]:
    """`%s` and `%(name)s` as `$1`; and which value each number stands for.

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
