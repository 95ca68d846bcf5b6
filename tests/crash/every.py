"""Every row, in the order of the points."""

from __future__ import annotations

from tests.crash import (
    rows_accept,
    rows_back,
    rows_calls,
    rows_decide,
    rows_postgres,
    rows_queue,
    rows_world,
)

_MODULES = (rows_accept, rows_decide, rows_queue, rows_calls, rows_back, rows_postgres, rows_world)
ROWS = sorted(
    (row for module in _MODULES for row in module.ROWS), key=lambda row: int(row.point[1:])
)
assert len({row.name for row in ROWS}) == len(ROWS)

# What `make test` plays: one row for each place in which a crash can fall.
IN_SUITE = (
    "P2 · COMMIT done, answer lost: step · forward · probed",
    "P5 · SIGKILL of the relay · forward · probed",
    "P11 · SIGKILL, effect there · approved · probed",
    "P13 · COMMIT done, answer lost · forward · probed",
    "P16 · SIGSTOP in the call · forward · dedupes",
    "P18 · abort, the call in flight: late · abort · dedupes",
    "P19 · SIGKILL at P12 · compensate · blind",
)
