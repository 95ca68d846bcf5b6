"""Fault points stop a process that was started with them, and are nothing to any other."""

from __future__ import annotations

import ast
import os
import threading
from pathlib import Path

from ledger import faultpoints
from saga_console.home import BASE_DIR
from tests.running import eventually, manage


def calls() -> list[str]:
    """The first argument of every `reached(…)` in the product."""
    found = []
    for app in ("ledger", "approvals", "saga_console"):
        for path in (BASE_DIR / app).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
                    if ast.unparse(node.func) == "faultpoints.reached":
                        assert isinstance(node.args[0], ast.Constant), path
                        found.append(str(node.args[0].value))
    return found


def test_every_named_point_is_in_the_code_and_no_other() -> None:
    assert set(calls()) == set(faultpoints.POINTS)


def test_a_process_that_was_not_started_with_them_has_none() -> None:
    assert "SAGA_FAULTS" not in os.environ
    assert faultpoints.reached is faultpoints._nothing


def test_an_armed_point_holds_whoever_comes_first_until_its_file_is_gone(tmp_path: Path) -> None:
    reached = faultpoints.watching(tmp_path)
    reached("P10", "forward")  # not armed: no stop
    (tmp_path / "P10.compensate").touch()
    reached("P10", "forward")  # armed for the other direction
    thread = threading.Thread(target=reached, args=("P10", "compensate"))
    thread.start()
    here = tmp_path / f"P10.{os.getpid()}.here"
    eventually(here.exists, "it says that it is there")
    reached("P10", "compensate")  # armed once
    assert thread.is_alive()
    here.unlink()
    thread.join(5)
    assert not thread.is_alive()


def test_they_are_refused_where_effects_are_real(tmp_path: Path) -> None:
    folder = tmp_path / "faults"
    folder.mkdir(mode=0o700)
    refused = manage(tmp_path / "home", "check", SAGA_FAULTS=str(folder), SECURE="1")
    assert refused.returncode == 1
    assert refused.stderr.startswith("SAGA_FAULTS: stops processes")


def test_every_process_that_has_them_says_so(tmp_path: Path) -> None:
    folder = tmp_path / "faults"
    folder.mkdir(mode=0o700)
    said = manage(tmp_path / "home", "check", SAGA_FAULTS=str(folder))
    assert said.returncode == 0
    assert "SAGA_FAULTS is set" in said.stdout + said.stderr
