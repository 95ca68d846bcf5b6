"""The commands of retention as a user runs them, and killed as machines do."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from ledger.exports import UNFINISHED
from ledger.models import Export, Saga, Tombstone
from saga_console.home import BASE_DIR
from tests.archivecast import ended, faults_of
from tests.shop import Shop, assert_verifies

COMMAND = [sys.executable, "manage.py"]


def run(env: dict[str, str], *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*COMMAND, *words],
        cwd=BASE_DIR,
        env=env,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def archive_words(folder: Path) -> tuple[str, ...]:
    return ("archive", "--older-than", "0s", "--to", str(folder))


def test_the_commands_do_what_they_say(
    shop: Shop, console_env: dict[str, str], tmp_path: Path
) -> None:
    saga, folder = ended(shop), tmp_path / "archive"
    shop.open()
    told = run(console_env, *archive_words(folder), "--dry-run")
    assert told.stdout.startswith("1 saga would leave"), told.stderr
    assert Saga.objects.count() == 2
    young = run(console_env, "archive", "--older-than", "90d", "--to", str(folder))
    assert young.stdout.strip() == "nothing has left", young.stderr
    done = run(console_env, *archive_words(folder))
    (path,) = folder.iterdir()
    assert done.stdout.strip() == f"1 saga left the ledger by {path}", done.stderr
    assert run(console_env, *archive_words(folder)).stdout.strip() == "nothing has left"
    # No database is needed to check a file.
    nowhere = console_env | {"DATABASE_URL": "postgresql://nobody@127.0.0.1:1/none"}
    checked = run(nowhere, "verify_export", str(path))
    assert (checked.returncode, checked.stdout.strip()) == (0, "the export verifies: 1 saga")
    bad = tmp_path / "bad.jsonl"
    bad.write_bytes(path.read_bytes().replace(b"ada@", b"eve@"))
    wrong = run(nowhere, "verify_export", str(bad))
    assert (wrong.returncode, "saga -" in wrong.stdout) == (1, False)
    assert wrong.stdout.startswith("bad.jsonl: ")
    assert run(console_env, "restore", str(bad)).returncode == 1
    back = run(console_env, "restore", str(path), "--saga", str(saga))
    assert (back.returncode, back.stdout.strip()) == (0, "1 sagas are back"), back.stderr
    again = run(console_env, "restore", str(path))
    assert (again.returncode, again.stdout.strip()) == (0, "0 sagas are back"), again.stderr
    assert Saga.objects.filter(pk=saga, state="completed").exists()
    verified = run(console_env, "verify_ledger")
    assert verified.returncode == 0, verified.stdout


@pytest.mark.parametrize("words", [("--older-than", "soon"), ("--older-than", "-1d"), ()])
def test_a_span_that_is_none_is_refused(
    console_env: dict[str, str], transactional_db: None, words: tuple[str, ...]
) -> None:
    done = run(console_env, "archive", *words)
    assert done.returncode != 0
    assert "older-than" in done.stderr


def starts_leaving() -> bool:
    return Tombstone.objects.exists()


def is_known() -> bool:
    return Export.objects.exists()


MOMENTS: dict[str, Any] = {
    "as the export is begun": None,
    "as the database knows of it": is_known,
    "as the first saga has left": starts_leaving,
}


@pytest.mark.parametrize("moment", MOMENTS)
def test_sigkill_at_any_moment_loses_nothing(
    shop: Shop, console_env: dict[str, str], tmp_path: Path, moment: str
) -> None:
    """P24: killed for real; what is neither here nor whole in a file is lost, and nothing is."""
    sagas = {ended(shop, email=f"{n}@example.com") for n in range(8)}
    folder = tmp_path / "archive"
    running = subprocess.Popen(
        [*COMMAND, *archive_words(folder)], cwd=BASE_DIR, env=console_env, stderr=subprocess.DEVNULL
    )
    until = MOMENTS[moment] or (lambda: folder.exists() and any(folder.iterdir()))
    deadline = time.monotonic() + 60
    while running.poll() is None and not until():
        assert time.monotonic() < deadline
        time.sleep(0.001)
    running.kill()
    running.wait(10)
    here = set(Saga.objects.values_list("pk", flat=True))
    gone = set(Tombstone.objects.values_list("saga_id", flat=True))
    assert here | gone == sagas
    assert here & gone == set()
    files = [path for path in folder.glob("*") if path.suffix != UNFINISHED]
    assert [fault for path in files for fault in faults_of(path)] == []
    assert_verifies()
    done = run(console_env, *archive_words(folder))
    assert done.returncode == 0, done.stderr
    assert Saga.objects.count() == 0
    assert set(Tombstone.objects.values_list("saga_id", flat=True)) == sagas
    assert not list(folder.glob(f"*{UNFINISHED}"))
    assert_verifies()
