"""A home as the first start of a console leaves it, made once for a run of the tests.

`initdb`, all migrations and the static files are seven seconds of a processor, for each console
that a test starts and for each lane's own database; a copy of what they made is a tenth of one.
Tests that are about a first start take an empty home. No secret key is copied: each home makes one.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

from saga_console.locks import locked
from tests.running import manage

# Named by the process that reports (conftest.py): the lanes of a run share what it names.
VARIABLE = "SAGA_TESTS_FURNISHED"
# All that a first start writes. The queue starts empty, and sockets and locks are of a run.
EVERYTHING = ("postgres", "static")


def furnished(home: Path, *names: str) -> Path:
    """This home, as `prepare_console` leaves a new one; or only these folders of it."""
    made = _made(Path(os.environ[VARIABLE]))
    home.mkdir(parents=True, exist_ok=True)
    folders = [str(made / name) for name in names or EVERYTHING]
    # With owners and rights: the servers' files are another account's.
    subprocess.run(["cp", "-a", *folders, str(home)], check=True)
    return home


def _made(kept: Path) -> Path:
    with locked(kept.with_suffix(".lock")):
        if not kept.exists():
            draft = kept.with_suffix(".new")
            shutil.rmtree(draft, ignore_errors=True)
            done = manage(draft, "prepare_console")
            assert done.returncode == 0, done.stdout + done.stderr
            draft.rename(kept)
    return kept
