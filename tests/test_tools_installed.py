"""The Django door: tools of installed apps, found in a process that really is a Django one."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

APP_TOOLS = """
from ledger.tools.python import tool

@tool("shop.ping", version="1", tier="pivot", blast_radius="low", args={})
class Ping:
    def execute(self, call):
        return "pong"
"""
PROGRAM = """
import django
from django.conf import settings
settings.configure(
    INSTALLED_APPS=["ledger", "shop", "plain"], SAGA_TOOLS={file!r}, SECRET_KEY="x", REDIS_URL="",
    SAGA_WEBHOOK_HOSTS="", SAGA_CHANNELS="", SAGA_MAIL_URL="",
)
django.setup()
from ledger.tools.installed import registry
assert registry() is registry()
print([tool.key for tool in registry().all()])
"""


def run(tmp_path: Path, tools_file: str | None) -> subprocess.CompletedProcess[str]:
    for app, text in [("shop", APP_TOOLS), ("plain", None)]:
        (tmp_path / app).mkdir()
        (tmp_path / app / "__init__.py").touch()
        if text:
            (tmp_path / app / "tools.py").write_text(text)
    return subprocess.run(
        [sys.executable, "-c", PROGRAM.format(file=tools_file)],
        env={"PYTHONPATH": f"{Path(__file__).parents[1]}:{tmp_path}"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_installed_apps_and_the_tools_file_fill_one_registry(tmp_path: Path) -> None:
    path = tmp_path / "tools.toml"
    path.write_text(
        '[tools.ring]\nversion = "1"\ntier = "pivot"\nblast_radius = "low"\nargs = {}\n'
        'execute = { method = "POST", url = "http://127.0.0.1/ring" }\n'
    )
    finished = run(tmp_path, str(path))
    assert finished.stdout.strip() == "['ring', 'shop.ping']", finished.stderr


def test_without_a_tools_file_the_apps_are_enough(tmp_path: Path) -> None:
    assert run(tmp_path, None).stdout.strip() == "['shop.ping']"


def test_a_wrong_file_stops_the_start_with_its_line(tmp_path: Path) -> None:
    path = tmp_path / "tools.toml"
    path.write_text('[tools.ring]\nversion = "1"\n')
    finished = run(tmp_path, str(path))
    assert finished.returncode != 0
    assert f"{path}:1: ring: 'tier' is a required property" in finished.stderr
