"""Run the rows and print the table: `python -m tests.crash [--lanes N] [--write] [WORD …]`.

Exit 1 if any row is red. `--write` puts the table into docs/recovery.md.
"""

from __future__ import annotations

import argparse
import queue
import sys
import tempfile
import threading
import time
import traceback
from dataclasses import dataclass, replace
from pathlib import Path

from tests.crash.every import ROWS
from tests.crash.lane import Lane
from tests.crash.page import put
from tests.crash.rows import Row, Stage

LANES = 3


@dataclass
class Result:
    """How a row went. `fault` is empty when it is green."""

    row: Row
    effects: int = 0
    state: str = ""
    took_s: float = 0.0
    fault: str = ""


def stage_on(lane: Lane) -> Stage:
    """A lane's cast: one agent, and one person who may decide."""
    return Stage(lane, lane.agent, lane.person, lane.sign_in("oskar"))


def play(row: Row, lane: Lane, cast: Stage) -> Result:
    """One row, on a lane that is quiet."""
    stage = replace(cast)
    try:
        lane.quiet()
        row.play(stage, row.kind)
    except Exception as error:
        told = traceback.format_exc() if not isinstance(error, AssertionError) else str(error)
        fault = told or traceback.format_exc()
        return Result(row, stage.effects, stage.state, stage.took_s, fault)
    finally:
        lane.disarm()
        lane.target.released.set()
    return Result(row, stage.effects, stage.state, stage.took_s)


class Run:
    """All rows over a few lanes, side by side: most of a row's time is waiting for a lease."""

    def __init__(self, rows: list[Row], lanes: int, folder: Path) -> None:
        self.todo: queue.SimpleQueue[Row] = queue.SimpleQueue()
        for row in rows:
            self.todo.put(row)
        self.results: dict[str, Result] = {}
        self.broken: list[str] = []
        self.folder = folder
        self.lanes = lanes

    def run(self) -> None:
        threads = [threading.Thread(target=self._lane, args=(n,)) for n in range(self.lanes)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def _lane(self, number: int) -> None:
        try:
            lane = Lane(self.folder / f"lane-{number}")
        except Exception:
            self.broken.append(traceback.format_exc())
            return
        try:
            cast = stage_on(lane)
            while True:
                try:
                    row = self.todo.get_nowait()
                except queue.Empty:
                    break
                result = play(row, lane, cast)
                self.results[row.name] = result
                print(line(result), flush=True)
            lane.quiet()
            print(f"lane {number}: {lane.manage('verify_ledger')}", flush=True)
        except Exception:
            self.broken.append(f"lane {number}: {traceback.format_exc()}")
        finally:
            lane.close()


def table(results: list[Result]) -> str:
    """All rows for docs/recovery.md."""
    lines = ["| point | fault | direction | target | effects | ends | recovered in |"]
    lines.append("|---|---|---|---|---|---|---|")
    for result in results:
        row = result.row
        lines.append(
            f"| {row.point} | {row.fault} | {row.direction} | {row.kind} | {result.effects} "
            f"| {result.state} | {result.took_s:.1f} s |"
        )
    return "\n".join(lines)


def line(result: Result) -> str:
    row = result.row
    colour = "red  " if result.fault else "green"
    return (
        f"{colour} {row.point:<4} {row.fault:<44} {row.direction:<11} {row.kind:<8} "
        f"{result.effects:>2} {result.state:<12} {result.took_s:5.1f} s"
    )


def main() -> int:
    parser = argparse.ArgumentParser(prog="make crash", description="Every crash point.")
    parser.add_argument("--lanes", type=int, default=LANES)
    parser.add_argument("--write", action="store_true", help="the table into docs/recovery.md")
    parser.add_argument("words", nargs="*", help="only rows whose names contain one of these")
    asked = parser.parse_args()
    rows = [r for r in ROWS if not asked.words or any(w in r.name for w in asked.words)]
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="saga-crash-") as folder:
        run = Run(rows, min(asked.lanes, len(rows)), Path(folder))
        run.run()
    results = [run.results[row.name] for row in rows if row.name in run.results]
    red = [result for result in results if result.fault]
    for result in red:
        print(f"\nRED {result.row.name}\n{result.fault}", file=sys.stderr)
    for words in run.broken:
        print(f"\nBROKEN LANE\n{words}", file=sys.stderr)
    green, took_s = len(results) - len(red), time.monotonic() - began
    print(f"\n{green} of {len(rows)} rows green in {took_s:.0f} s")
    is_good = green == len(rows) and not run.broken
    if asked.write and is_good:
        put("crash", table(results))
    return int(not is_good)


if __name__ == "__main__":
    sys.exit(main())
