"""Statements to Postgres in one round trip: libpq's pipeline mode, with nothing around it.

A step is a dozen small statements, and most of a small statement's time is the way there and
back. psycopg's own pipeline sends BEGIN and COMMIT by themselves and spends 0.03 ms of CPU on
each cursor; here both travel with the statements, and a statement costs a third of that
(docs/decisions/0042-statements-travel-together.md). Values are adapted by psycopg.
"""

from __future__ import annotations

import itertools
import select
from collections import namedtuple
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

import psycopg
from psycopg import pq
from psycopg.adapt import AdaptersMap, PyFormat, Transformer
from psycopg.errors import error_from_result
from psycopg.types.datetime import TimestamptzLoader
from psycopg.types.json import JsonbLoader

from ledger.statements import Params, Statement, as_postgres_reads

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
_ABORTED = int(pq.ExecStatus.PIPELINE_ABORTED)
_TUPLES = int(pq.ExecStatus.TUPLES_OK)
_CHANNEL = "_saga_channel"
_TOO_LATE = "a statement before it had failed"


@dataclass(frozen=True, slots=True)
class Found:
    """What one statement came to: its rows as named tuples, or how many rows it touched."""

    rows: list[Any]
    count: int


@dataclass(slots=True, eq=False)
class Coming:
    """Statements that are under way; `found` is there once they have been heard."""

    statements: Sequence[Statement]
    is_soon: bool = False
    found: list[Found] | None = None
    # For each result to come: a statement's text, and whether it is only about preparing that.
    sent: list[tuple[str, bool]] = field(default_factory=list)


def channel(connection: psycopg.Connection[Any]) -> Channel:
    """The channel of this connection; it lives as long as the connection does."""
    found: Channel | None = getattr(connection, _CHANNEL, None)
    if found is None:
        found = Channel(connection)
        setattr(connection, _CHANNEL, found)
    return found


# The channels of this process that wait for Postgres. Where others do, cores are busy: to wake
# Postgres once more costs more than it gains (the rate of sixteen callers was 0.97 of before).
_WAITING: set[Any] = set()


class Channel:
    """One connection's prepared statements. Used by one thread at a time, as the connection is."""

    def __init__(self, connection: psycopg.Connection[Any]) -> None:
        self._connection = connection
        self._pg = connection.pgconn
        self._names: dict[str, bytes] = {}
        self._preparing: dict[str, bytes] = {}
        self._under_way: list[Coming] = []
        self._numbers = itertools.count()
        self._shapes: dict[str, Callable[..., Any]] = {}
        self._adapt = Transformer(_Adapting(connection))
        self._poll = select.poll()
        self._poll.register(self._pg.socket, select.POLLIN)

    def run(self, statements: Sequence[Statement], *, commit: bool = False) -> list[Found]:
        """Run statements in order; with `commit`, end the transaction in the same trip.

        Begins a transaction when the connection is not in autocommit and not in one. The first
        error of Postgres is raised, and nothing after it was run: one of what was sent ahead
        first. An error on the way closes the connection: nobody knows what was done.
        """
        if not statements and self._is_quiet() and self._is_idle():
            return []
        own = Coming(statements)
        bound = [self._bind(sql, params) for sql, params in statements]
        try:
            self._send(own, bound + [_COMMIT] * commit)
            self._pg.pipeline_sync()
            self._push()
            results = self._wait_for(self._results())
        except BaseException:
            self._connection.close()
            raise
        self._pg.exit_pipeline_mode()
        under_way, self._under_way = self._under_way, []
        for one in under_way:
            mine, results = results[: len(one.sent)], results[len(one.sent) :]
            one.found = self._understand(one, mine)
        if commit and mine[-1].command_status != b"COMMIT":
            raise psycopg.InternalError("the transaction had failed and was rolled back")
        return own.found or []

    def ahead(self, statements: Sequence[Statement], *, soon: bool = False) -> Coming:
        """Send statements and go on while Postgres works on them, unless it works for others too.

        What goes wrong with them is raised by what is run next, or by `hear`. Until something is
        run, nothing but this channel may use the connection (`settle`). `soon`: they will be heard
        before that, so Postgres is not to keep their answers until then.
        """
        coming = Coming(statements, soon)
        bound = [self._bind(sql, params) for sql, params in statements]
        try:
            self._send(coming, bound)
            if soon:
                self._pg.send_flush_request()
            if not _WAITING:
                self._push()
        except BaseException:
            self._connection.close()
            raise
        return coming

    def hear(self, coming: Coming) -> list[Found]:
        """Wait for what was sent ahead: when that was to be `soon`, for nothing sent after it, but
        where others wait too for all at once."""
        if not coming.is_soon or _WAITING:
            self.settle()
        while coming in self._under_way:
            try:
                self._push()
                results = self._wait_for(islice(self._results(), len(self._under_way[0].sent)))
            except BaseException:
                self._connection.close()
                raise
            first = self._under_way.pop(0)
            first.found = self._understand(first, results)
        if coming.found is None:
            raise psycopg.InternalError(_TOO_LATE)
        return coming.found

    def settle(self) -> None:
        """Wait for what was sent ahead and nobody has waited for. Raises what went wrong."""
        if not self._is_quiet():
            self.run([])

    def _is_idle(self) -> bool:
        return self._pg.transaction_status == pq.TransactionStatus.IDLE

    def _is_quiet(self) -> bool:
        """Whether nothing was sent ahead."""
        return self._pg.pipeline_status == pq.PipelineStatus.OFF

    def _bind(self, sql: str, params: Params) -> Bound:
        text, order = as_postgres_reads(sql)
        if isinstance(params, dict):
            params = [params[name] for name in order]
        elif len(params) != len(order):
            raise psycopg.ProgrammingError(f"{len(order)} values are needed, not {len(params)}")
        formats = [PyFormat.TEXT] * len(params)
        return sql, text, list(self._adapt.dump_sequence(params, formats))

    def _send(self, coming: Coming, bound: Sequence[Bound]) -> None:
        """Give everything to libpq, behind what is under way or else behind a BEGIN."""
        if self._is_quiet():
            # Only what the server says it has prepared is used again: see `_understand`.
            self._preparing = {}
            if self._is_idle() and not self._connection.autocommit:
                bound = [_BEGIN, *bound]
            self._pg.enter_pipeline_mode()
        self._under_way.append(coming)
        for sql, text, values in bound:
            name = self._names.get(sql) or self._preparing.get(sql)
            if name is None:
                # Who looks at the wire shall see where a transaction ends. No name comes twice:
                # what is prepared anew may still be there under its old one.
                word = sql.encode() if sql in _AROUND else b"saga"
                name = self._preparing[sql] = b"%s_%d" % (word, next(self._numbers))
                self._pg.send_prepare(name, text)
                coming.sent.append((sql, True))
            self._pg.send_query_prepared(name, values)
            coming.sent.append((sql, False))

    def _push(self) -> None:
        """Hand everything to the kernel, reading meanwhile: else both sides could wait."""
        while self._pg.flush():
            self._poll.modify(self._pg.socket, select.POLLIN | select.POLLOUT)
            try:
                if any(event & select.POLLIN for _, event in self._poll.poll()):
                    self._pg.consume_input()
            finally:
                self._poll.modify(self._pg.socket, select.POLLIN)

    def _wait_for(self, results: Iterator[pq.abc.PGresult]) -> list[pq.abc.PGresult]:
        _WAITING.add(self)
        try:
            return list(results)
        finally:
            _WAITING.discard(self)

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

    def _understand(self, coming: Coming, results: list[pq.abc.PGresult]) -> list[Found]:
        answers = []
        for (sql, is_preparation), result in zip(coming.sent, results, strict=False):
            if result.status == _FATAL:
                raise self._error(result)
            if result.status == _ABORTED:
                raise psycopg.InternalError(_TOO_LATE)
            if is_preparation:
                self._names[sql] = self._preparing[sql]
            elif sql not in _AROUND:
                answers.append(result)
        both = zip(coming.statements, answers, strict=True)
        return [self._load(sql, result) for (sql, _), result in both]

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
