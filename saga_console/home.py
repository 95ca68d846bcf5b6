"""SAGA_HOME: where everything lives that must survive, and who may use it when.

    SAGA_HOME/
      secret_key            made once, 0600
      postgres/ valkey/     the data of the embedded servers
      sock/                 their sockets (or a folder in the temp dir when the path is long)
      log/                  what the servers said
      run/                  locks; deleting them while nothing runs is harmless

No Django here: `manage.py` asks before settings are read.
"""

from __future__ import annotations

import hashlib
import os
import secrets
import tempfile
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from saga_console import environment
from saga_console.locks import locked

BASE_DIR = Path(__file__).resolve().parent.parent
# sun_path in sockaddr_un holds 108 bytes with the closing NUL; the longest name is Postgres'.
_LONGEST_SOCKET_PATH = 107
_LOG_BYTES = 20 * 1024 * 1024
_POSTGRES_SOCKET = ".s.PGSQL.5432"


class HomeError(RuntimeError):
    """The home cannot be used. The message is one line that says what to change."""


@dataclass(frozen=True, slots=True)
class Home:
    """One SAGA_HOME. Building it touches nothing."""

    root: Path

    @property
    def run(self) -> Path:
        return self.root / "run"

    @property
    def log(self) -> Path:
        return self.root / "log"

    @property
    def sockets(self) -> Path:
        """Short enough for a unix socket, and the same for every process of this home."""
        here = self.root / "sock"
        if len(os.fsencode(here / _POSTGRES_SOCKET)) <= _LONGEST_SOCKET_PATH:
            return here
        digest = hashlib.sha256(os.fsencode(self.root)).hexdigest()[:16]
        return Path(tempfile.gettempdir()) / f"saga-console-{os.geteuid()}-{digest}"

    @property
    def database_url(self) -> str:
        return self.database_url_as("saga")

    def database_url_as(self, role: str, database: str = "saga") -> str:
        return f"postgresql://{role}@/{database}?host={quote(str(self.sockets), safe='')}"

    @property
    def redis_url(self) -> str:
        return f"unix://{quote(str(self.sockets / 'valkey.sock'))}?db=0"

    def create(self) -> None:
        """Make the folders. Raises HomeError with one line when that is not allowed."""
        try:
            self.root.mkdir(parents=True, exist_ok=True)
            for folder in (self.run, self.log):
                folder.mkdir(exist_ok=True, mode=0o700)
                (folder / ".writable").touch()
        except OSError as error:
            raise self._refused(error) from None

    def _refused(self, error: OSError) -> HomeError:
        return HomeError(
            f"SAGA_HOME {self.root} cannot be used: {error.strerror} ({error.filename}). "
            "Is it a folder, and was it made by this user?"
        )

    def secret_key(self) -> str:
        """The signing key of this home: made on first use, readable by its owner only.

        Raises HomeError.
        """
        try:
            return self._secret_key()
        except OSError as error:
            raise self._refused(error) from None

    def _secret_key(self) -> str:
        path = self.root / "secret_key"
        with suppress(FileNotFoundError):
            return path.read_text(encoding="ascii").strip()
        self.create()
        with locked(self.run / "secret_key.lock"):
            with suppress(FileNotFoundError):
                return path.read_text(encoding="ascii").strip()
            key = secrets.token_urlsafe(48)
            draft = path.with_suffix(".new")
            draft.unlink(missing_ok=True)
            descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with os.fdopen(descriptor, "w", encoding="ascii") as file:
                file.write(key)
                file.flush()
                os.fsync(file.fileno())
            draft.rename(path)  # whole or not at all, even when power fails here
            return key


def current_home() -> Home:
    """The home that SAGA_HOME names, `var/` beside manage.py by default."""
    given = environment.text("SAGA_HOME")
    try:
        path = Path(given).expanduser() if given else BASE_DIR / "var"
    except RuntimeError as error:  # `~nobody`
        raise environment.BadSetting("SAGA_HOME", f"{given}: {error}") from None
    return Home(Path(os.path.abspath(path)))


def log_file(name: str, home: Home) -> Path:
    """Where a server's output goes; a long one is put aside once, so it cannot fill a disk."""
    path = home.log / f"{name}.log"
    with suppress(FileNotFoundError):
        if path.stat().st_size > _LOG_BYTES:
            path.replace(path.with_suffix(".log.1"))
    return path
