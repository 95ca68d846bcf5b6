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
from contextlib import suppress
from typing import Any

import psycopg
from psycopg import pq
from psycopg.adapt import PyFormat, Transformer
from psycopg.errors import error_from_result

from ledger.statements import Adapting, Coming, Found, Params, Statement, as_postgres_reads

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
# Who gives up waits so long for what is certainly about to come, and no longer for a lock.
_PATIENCE_MS = 20
_CANCEL_WITHIN_S = 2


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
        # What each Sync that was sent stands behind, and what is still to be sent.
        self._trips: list[list[Coming]] = []
        self._kept: list[tuple[Coming, list[Bound]]] = []
        self._numbers = itertools.count()
        self._shapes: dict[str, Callable[..., Any]] = {}
        self._adapt = Transformer(Adapting(connection))
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
        own = self._kept_back(statements, [_COMMIT] * commit)
        self._send()
        self._hear_all()
        return own.found or []

    def ahead(self, statements: Sequence[Statement]) -> Coming:
        """Send statements and go on while Postgres works on them, unless it works for others too.

        What goes wrong with them is raised by what is run next, or by `hear`. Until something is
        run, nothing but this channel may use the connection (`settle`).
        """
        coming = self._kept_back(statements, [])
        if not _WAITING:
            self._send()
        return coming

    def hear(self, coming: Coming) -> list[Found]:
        """Wait for what was sent ahead, and for nothing that was sent after it."""
        if any(coming is kept for kept, _ in self._kept):
            self._send()
        while coming.found is None and self._trips:
            self._hear()
        if coming.found is None:
            raise psycopg.InternalError(_TOO_LATE)
        return coming.found

    def settle(self) -> None:
        """Wait for what was sent ahead and nobody has waited for. Raises what went wrong."""
        if self._kept:
            self._send()
        if not self._is_quiet():
            self._hear_all()

    def give_up(self) -> None:
        """Wait no more for what was sent ahead: a rollback follows. What waits for a lock is
        cancelled, for who gives up needs none. Raises what went wrong."""
        self._kept.clear()
        while self._trips and self._pg.is_busy() and not self._poll.poll(_PATIENCE_MS):
            self._connection.cancel_safe(timeout=_CANCEL_WITHIN_S)
            with suppress(psycopg.Error):
                self._hear()
        self.settle()

    def _is_idle(self) -> bool:
        return self._pg.transaction_status == pq.TransactionStatus.IDLE

    def _is_quiet(self) -> bool:
        """Whether nothing was sent ahead, and nothing is to be."""
        return not self._kept and self._pg.pipeline_status == pq.PipelineStatus.OFF

    def _kept_back(self, statements: Sequence[Statement], then: Sequence[Bound]) -> Coming:
        coming = Coming(statements)
        bound = [self._bind(sql, params) for sql, params in statements]
        self._kept.append((coming, [*bound, *then]))
        return coming

    def _bind(self, sql: str, params: Params) -> Bound:
        text, order = as_postgres_reads(sql)
        if isinstance(params, dict):
            params = [params[name] for name in order]
        elif len(params) != len(order):
            raise psycopg.ProgrammingError(f"{len(order)} values are needed, not {len(params)}")
        formats = [PyFormat.TEXT] * len(params)
        return sql, text, list(self._adapt.dump_sequence(params, formats))

    def _send(self) -> None:
        """Send all that was kept back, behind a BEGIN when it is the first, and a Sync.

        A Sync behind everything, so that Postgres can end a transaction whose client has stopped
        (docs/decisions/0051-an-idle-transaction-is-ended.md).
        """
        kept, self._kept = self._kept, []
        try:
            if not self._trips:
                # Only what the server says it has prepared is used again: see `_understand`.
                self._preparing = {}
                if self._is_idle() and not self._connection.autocommit:
                    kept[0][1].insert(0, _BEGIN)
                if self._pg.pipeline_status == pq.PipelineStatus.OFF:
                    self._pg.enter_pipeline_mode()
            self._trips.append([coming for coming, _ in kept])
            for coming, bound in kept:
                for one in bound:
                    self._send_one(coming, *one)
            self._pg.pipeline_sync()
            self._push()
        except BaseException:
            self._abandon()
            raise

    def _send_one(self, coming: Coming, sql: str, text: bytes, values: list[Any]) -> None:
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

    def _abandon(self) -> None:
        """Nobody knows what was done, and nobody will hear it on this connection."""
        self._trips, self._kept = [], []
        self._connection.close()

    def _push(self) -> None:
        """Hand everything to the kernel, reading meanwhile: else both sides could wait."""
        while self._pg.flush():
            self._poll.modify(self._pg.socket, select.POLLIN | select.POLLOUT)
            try:
                if any(event & select.POLLIN for _, event in self._poll.poll()):
                    self._pg.consume_input()
            finally:
                self._poll.modify(self._pg.socket, select.POLLIN)

    def _hear(self) -> None:
        """Wait for one trip. Raises the first error in it."""
        _WAITING.add(self)
        try:
            results = list(self._results())
        except BaseException:
            self._abandon()
            raise
        finally:
            _WAITING.discard(self)
        trip = self._trips.pop(0)
        for coming in trip:
            mine, results = results[: len(coming.sent)], results[len(coming.sent) :]
            coming.found = self._understand(coming, mine)

    def _hear_all(self) -> None:
        """Wait for every trip, so that the connection is as everybody else knows it."""
        failed = None
        while self._trips:
            try:
                self._hear()
            except psycopg.Error as error:
                failed = failed or error
        if not self._connection.closed:
            self._pg.exit_pipeline_mode()
        if failed is not None:
            raise failed

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
            # libpq ends each statement's results with none, which it never waits for. (To ask
            # whether it would gives the other threads the interpreter, each time.)
            pg.get_result()

    def _understand(self, coming: Coming, results: list[pq.abc.PGresult]) -> list[Found]:
        answers = []
        for (sql, is_preparation), result in zip(coming.sent, results, strict=True):
            if result.status == _FATAL:
                raise self._error(result)
            if result.status == _ABORTED:
                raise psycopg.InternalError(_TOO_LATE)
            if is_preparation:
                self._names[sql] = self._preparing[sql]
            elif sql not in _AROUND:
                answers.append(result)
            elif result.command_status != sql.encode():
                raise psycopg.InternalError("the transaction had failed and was rolled back")
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
