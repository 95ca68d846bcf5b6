"""The stage of the state machine: its target, its tools, and a clock that waits for it."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from django.db import connection

from ledger import shift as shifts_of_workers
from ledger.services import unit_sql
from ledger.tools.installed import registry
from tests.book import Book, Bookshop, tools_text
from tests.machine import Console


@pytest.fixture(scope="session")
def bookshop() -> Iterator[Bookshop]:
    """The target, in a thread of its own behind a real socket."""
    server = Bookshop(Book())
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server
    server.shutdown()
    server.server_close()


@pytest.fixture
def machine(
    transactional_db: None,
    bookshop: Bookshop,
    settings: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[type[Console]]:
    """The machine's class, with its tools registered and short pauses."""
    tools = tmp_path / "tools.toml"
    tools.write_text(tools_text(bookshop.url, settle_s=0.0), encoding="utf-8")
    settings.SAGA_TOOLS = str(tools)
    settings.SAGA_PROBE_APART_S = 0.0
    settings.SAGA_SHIFT_LINGER_S = 0.05
    settings.SAGA_SHIFT_THREADS = 1  # or the order of its calls would be the scheduler's
    # Delays last until a rule lets the time pass, whatever the machine is busy with.
    send = unit_sql.INSERT_MESSAGES
    lasting = send.sql.replace("interval '1 second'", "interval '1 day'")
    monkeypatch.setattr(unit_sql, "INSERT_MESSAGES", unit_sql.Batch(lasting, send.columns))
    monkeypatch.setattr(shifts_of_workers, "POLL_S", 0.005)
    registry.cache_clear()
    Console.book = bookshop.book
    # Nobody pulls the plug of this Postgres, and a thousand short transactions wait for its disk.
    with connection.cursor() as cursor:
        cursor.execute("SET synchronous_commit = off")
    yield Console
    with connection.cursor() as cursor:
        cursor.execute("RESET synchronous_commit")
    registry.cache_clear()
