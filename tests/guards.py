"""Remove one guard at a time, in a copy of the source, and demand that its test fails.

    python -m tests.guards [--write] [WORD …]

A guard that nobody would miss is no guard. Exit 1 if a test passes without its guard, or does
not pass with it. `--write` puts the table of guards into docs/recovery.md.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from saga_console.home import BASE_DIR
from tests.crash.page import put
from tests.guardlist import GUARDS, Guard

# Longer than any of these tests takes on a busy machine; a hang is a failure too.
PATIENCE_S = 400.0


def _copy(folder: Path) -> None:
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=BASE_DIR,
        capture_output=True,
        check=True,
    )
    for name in filter(None, listed.stdout.decode().split("\0")):
        if (BASE_DIR / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(BASE_DIR / name, folder / name)


def _passes(folder: Path, guard: Guard) -> tuple[bool, str]:
    """Whether its test passes there; and what it said."""
    try:
        done = subprocess.run(
            [sys.executable, *guard.command],
            cwd=folder,
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return False, "did not end"
    said = (done.stdout + done.stderr)[-3000:]
    # 1: it ran and failed. Anything else is a command that could not be run at all.
    assert done.returncode in (0, 1), said
    return done.returncode == 0, said


def hold(guard: Guard, *, whole: bool) -> str:
    """Why this guard is not proven, or ''."""
    with tempfile.TemporaryDirectory(prefix="saga-guards-") as name:
        folder = Path(name) / "source"
        _copy(folder)
        if whole:
            passes, said = _passes(folder, guard)
            if not passes:
                return f"its test fails although the guard is there:\n{said}"
        path = folder / guard.path
        source = path.read_text(encoding="utf-8")
        if source.count(guard.text) != 1:
            return f"{guard.path} has it {source.count(guard.text)} times: the list is out of date"
        path.write_text(source.replace(guard.text, guard.without), encoding="utf-8")
        passes, _ = _passes(folder, guard)
        return "its test passes without it" if passes else ""


def table() -> str:
    lines = ["| guard | where | without it, this fails |", "|---|---|---|"]
    for guard in GUARDS:
        test = guard.test.removeprefix("row:") if guard.test.startswith("row:") else guard.test
        kind = "crash row" if guard.test.startswith("row:") else "test"
        short = test.removeprefix("tests/").replace("::", " ")
        lines.append(f"| {guard.name} | `{guard.path}` | {kind} `{short}` |")
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(prog="make guards")
    parser.add_argument("--write", action="store_true", help="the table into docs/recovery.md")
    parser.add_argument("--whole", action="store_true", help="run each test with its guard first")
    parser.add_argument("words", nargs="*", help="only guards whose names contain one of these")
    asked = parser.parse_args()
    guards = [g for g in GUARDS if not asked.words or any(w in g.name for w in asked.words)]
    missed = 0
    for guard in guards:
        began = time.monotonic()
        fault = hold(guard, whole=asked.whole)
        missed += bool(fault)
        verdict = f"NOT PROVEN: {fault}" if fault else "missed at once"
        print(f"{guard.name}: {verdict} ({time.monotonic() - began:.0f} s)", flush=True)
    if asked.write and not missed:
        put("guards", table())
    return int(bool(missed))


if __name__ == "__main__":
    sys.exit(main())
