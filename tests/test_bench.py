"""`make bench` in small: what it prints, what it writes, and that it counts right."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from saga_console.home import BASE_DIR


@pytest.fixture(scope="module")
def figures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("bench") / "figures.json"


@pytest.fixture(scope="module")
def run(figures: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "bench.bench", "--quick", "--json", str(figures)],
        cwd=BASE_DIR,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_a_quick_run_ends_well_whatever_the_speed(run) -> None:
    assert run.returncode == 0, run.stderr


def test_the_table_names_machine_console_and_floor(run) -> None:
    whats = [line[:26].strip() for line in run.stdout.splitlines()[1:]]
    assert whats == [
        "commit, 1 connection",
        "commit, 16 connections",
        "GET /healthz, 16 callers",
        "step, 1 caller",
        "step, 16 callers",
        "replay of a finished step",
        "floor",
        "ledger",
    ]


def test_every_acknowledged_step_is_committed_and_the_ledger_verifies(run, figures: Path) -> None:
    found = json.loads(figures.read_text(encoding="utf-8"))
    assert found["ledger_verifies"] is True
    assert found["acknowledged"] == found["committed"] > 40


def test_times_are_plausible_and_the_floor_is_judged_by_them(run, figures: Path) -> None:
    found = json.loads(figures.read_text(encoding="utf-8"))
    one, floor = found["one_caller"], found["floor"]
    assert 0 < one["p50"] <= one["p99"]
    # Each is far dearer than the one before it: the other way round means that something is wrong,
    # but a few of them on a busy machine may lie anywhere near.
    assert 0 < found["commit_ms"] < 5 * one["p50"]
    assert 0 < found["replay"]["p50"] < 5 * one["p50"]
    reached = one["p50"] <= floor["p50_ms"] and found["steps_per_s"] >= floor["steps_per_s"]
    assert floor["reached"] is reached
