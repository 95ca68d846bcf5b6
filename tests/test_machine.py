"""Anything in any order, against the real database and a real target (tests/machine.py)."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import run_state_machine_as_test

from ledger import shift as shifts_of_workers
from ledger.services import unit_sql
from ledger.tools.installed import registry
from tests.book import Book, Bookshop, tools_text
from tests.machine import Console

# In the ordinary suite about half a minute; `make machine` says more.
EXAMPLES = int(os.environ.get("MACHINE_EXAMPLES", "25"))
STEPS = int(os.environ.get("MACHINE_STEPS", "40"))
PHASES = [Phase.explicit, Phase.reuse, Phase.generate]
if os.environ.get("MACHINE_SHRINK"):
    PHASES.append(Phase.shrink)


@pytest.fixture(scope="session")
def bookshop() -> Iterator[Bookshop]:
    """The target, in a thread of its own behind a real socket."""
    server = Bookshop(Book())
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server
    server.shutdown()
    server.server_close()


@pytest.fixture
def console(
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
    lasting = unit_sql.INSERT_MESSAGES.replace("interval '1 second'", "interval '1 day'")
    monkeypatch.setattr(unit_sql, "INSERT_MESSAGES", lasting)
    monkeypatch.setattr(shifts_of_workers, "POLL_S", 0.005)
    registry.cache_clear()
    Console.book = bookshop.book
    yield Console
    registry.cache_clear()


def test_whatever_happens_nothing_is_lost_doubled_or_unseen(console: type[Console]) -> None:
    wanted = settings(
        max_examples=EXAMPLES,
        stateful_step_count=STEPS,
        deadline=None,
        print_blob=True,
        suppress_health_check=list(HealthCheck),
        phases=PHASES,
    )
    console.seen.clear()
    run_state_machine_as_test(console, settings=wanted)
    print(console.seen.most_common())
