"""An export verified with no database: its digests, every chain, and what the rows should be."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from ledger.exports import BadExport, SagaLines, read
from ledger.gate import gate
from ledger.replay import Fault, saga_faults

Progress = Callable[[int], Any]


def verify_file(path: Path, on_saga: Progress | None = None) -> Iterator[Fault]:
    """Every fault of an export. A file that cannot be read to its end has one more: why."""
    count = 0
    try:
        for saga in read(path):
            yield from saga_lines_faults(saga)
            count += 1
            if on_saga:
                on_saga(count)
    except (BadExport, OSError) as error:
        yield Fault("-", None, f"{path.name}: {error}")


def saga_lines_faults(saga: SagaLines) -> Iterator[Fault]:
    """The faults of one saga as an export holds it."""
    (row,) = saga.rows("ledger_saga")
    if row["id"] != saga.id:
        yield Fault(saga.id, None, f"its row is that of {row['id']}")
        return
    try:
        entries = [_entry(entry) for entry in saga.rows("ledger_entry")]
        steps = [SimpleNamespace(**step) for step in saga.rows("ledger_step")]
        told = gate().decisions_in(saga.of_the_gate())
        yield from saga_faults(SimpleNamespace(**row), entries, steps, told)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        yield Fault(saga.id, None, f"it lacks what a saga has: {error!r}")


def _entry(row: dict[str, Any]) -> SimpleNamespace:
    return SimpleNamespace(**row | {"at": datetime.fromisoformat(row["at"])})
