"""Tools that cannot be used as they are written stop the start of whatever would run them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from django.core.management import call_command

from ledger.tools.faults import InvalidTools
from ledger.tools.installed import registry
from ledger.tools.modules import imported
from saga_console.home import BASE_DIR
from tests.running import clean_env, free_port, manage

RING = """
[tools.ring]
version = "1"
tier = "{tier}"
blast_radius = "low"
args = {{}}
execute = {{ method = "POST", url = "http://127.0.0.1/ring", headers = {{ A = "{a}" }} }}
"""


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"


@pytest.fixture
def wrong(tmp_path: Path) -> Path:
    path = tmp_path / "tools.toml"
    path.write_text(RING.format(tier="pivott", a="x"))
    return path


@pytest.mark.parametrize("command", ["up", "worker", "relay"])
def test_a_wrong_tools_file_stops_the_start_with_its_line(
    servers: None, home: Path, wrong: Path, command: str
) -> None:
    refused = manage(home, command, SAGA_TOOLS=str(wrong))
    assert refused.returncode == 1
    assert refused.stderr.splitlines()[-1].startswith(f"{wrong}:4: ring.tier: 'pivott' is not one")
    assert "Traceback" not in refused.stderr
    assert not (command == "up" and home.joinpath("postgres").exists())


def test_a_web_server_alone_does_not_start_either(home: Path, wrong: Path) -> None:
    web = [sys.executable, "-m", "granian", "--interface", "wsgi", "--port", str(free_port())]
    refused = subprocess.run(
        [*web, "--log-level", "error", "saga_console.wsgi:application"],
        cwd=BASE_DIR,
        env=clean_env(home, SAGA_TOOLS=str(wrong)),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert refused.returncode == 1
    assert f"{wrong}:4: ring.tier" in refused.stderr


@pytest.mark.parametrize("tools", ["", "missing.toml"])
def test_what_is_no_file_stops_it_too(home: Path, tmp_path: Path, tools: str) -> None:
    refused = manage(home, "up", SAGA_TOOLS=str(tmp_path / tools))
    assert refused.returncode == 1
    assert f"{tmp_path / tools}: cannot be read: " in refused.stderr
    assert "Traceback" not in refused.stderr


def test_a_secret_that_is_not_set_stops_it(home: Path, tmp_path: Path) -> None:
    path = tmp_path / "tools.toml"
    path.write_text(RING.format(tier="pivot", a="env:NO_SUCH_SECRET"))
    refused = manage(home, "up", SAGA_TOOLS=str(path))
    assert refused.returncode == 1
    assert f"{path}:7: ring: " in refused.stderr
    assert "NO_SUCH_SECRET" in refused.stderr


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("x = (", "SyntaxError: '(' was never closed"),
        ("import no_such_package", "ModuleNotFoundError: No module named 'no_such_package'"),
        ("int('seven')", "ValueError: invalid literal for int() with base 10: 'seven'"),
        ("import json; json.loads('{')", "JSONDecodeError: Expecting property name"),
    ],
)
def test_an_apps_tools_that_cannot_be_imported_are_named_by_file_and_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, reason: str
) -> None:
    path = shop_with(tmp_path, f"\n{text}\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "brokenshop", raising=False)
    with pytest.raises(InvalidTools) as told:
        imported("brokenshop.tools")
    assert str(told.value).startswith(f"{path}:2: {reason}")


def test_an_apps_tools_that_cannot_be_imported_stop_the_start(home: Path, tmp_path: Path) -> None:
    path = shop_with(tmp_path, "1 / 0\n")
    refused = manage(home, "up", SAGA_APPS="brokenshop", PYTHONPATH=str(tmp_path))
    assert refused.returncode == 1
    assert refused.stderr.splitlines()[-1] == f"{path}:1: ZeroDivisionError: division by zero"
    assert "Traceback" not in refused.stderr


def shop_with(folder: Path, text: str) -> Path:
    shop = folder / "brokenshop"
    shop.mkdir()
    (shop / "__init__.py").touch()
    (shop / "tools.py").write_text(text)
    return shop / "tools.py"


def test_a_process_that_runs_nothing_starts_beside_a_wrong_file(home: Path, wrong: Path) -> None:
    finished = manage(home, "check", SAGA_TOOLS=str(wrong))
    assert finished.returncode == 0, finished.stderr


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("words", ["verify_ledger", "agent_token x", "archive --older-than 90d"])
def test_what_looks_after_the_ledger_works_beside_a_wrong_file(
    settings: Any, tmp_path: Path, wrong: Path, words: str
) -> None:
    settings.SAGA_TOOLS, settings.SAGA_ARCHIVE = str(wrong), str(tmp_path)
    registry.cache_clear()
    try:
        call_command(*words.split())
    finally:
        registry.cache_clear()
