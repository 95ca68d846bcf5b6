"""The demo and the seeds from outside, as anybody starts them, in a home of their own."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from ledger.states import SagaState, StepState
from saga_console.home import BASE_DIR

COUNT = """
import json
from django.db import connection
found = {}
with connection.cursor() as cursor:
    for table in ("ledger_saga", "ledger_step"):
        cursor.execute(f"SELECT state, count(*) FROM {table} GROUP BY 1")
        found[table] = dict(cursor.fetchall())
print(json.dumps(found))
"""


# Nobody was ever told them, so none is left.
TOKENS = """
from ledger.models import Token
print(Token.objects.filter(revoked_at__isnull=True).count())
"""


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"


def manage(home: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Run one command on a home with its own embedded servers."""
    outside = ("DATABASE_URL", "REDIS_URL", "SAGA_TOOLS", "SAGA_POLICY", "SAGA_DEMO")
    env = {name: value for name, value in os.environ.items() if name not in outside}
    return subprocess.run(
        [sys.executable, str(BASE_DIR / "manage.py"), *words],
        env={**env, "SAGA_HOME": str(home)},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )


def free_port() -> str:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return str(probe.getsockname()[1])


def test_demo_once_plays_four_stories_and_every_row_is_right(home: Path) -> None:
    ran = manage(home, "up", "--demo", "--once", "--port", free_port())
    assert "4 of 4 rows are right." in ran.stdout, ran.stdout + ran.stderr
    assert ran.returncode == 0
    assert manage(home, "verify_ledger").returncode == 0


def test_seed_brings_every_state_and_a_second_time_changes_nothing(home: Path) -> None:
    sown = manage(home, "seed")
    assert sown.returncode == 0, sown.stdout + sown.stderr
    counted = json.loads(manage(home, "shell", "--no-imports", "-c", COUNT).stdout)
    assert set(counted["ledger_step"]) == set(StepState)
    assert set(counted["ledger_saga"]) == set(SagaState)
    assert manage(home, "verify_ledger").returncode == 0
    assert json.loads(manage(home, "shell", "--no-imports", "-c", TOKENS).stdout) == 0
    again = manage(home, "seed")
    assert "sown already" in again.stdout
    for ran in (sown, again):
        *_, last = ran.stdout.strip().splitlines()
        assert "make demo" in last
        assert "http://127.0.0.1:8400/attention/" in last
    assert json.loads(manage(home, "shell", "--no-imports", "-c", COUNT).stdout) == counted
