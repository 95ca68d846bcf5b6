"""Running a server that refuses to be root, when the console itself is root.

PostgreSQL will not run as root, and a container often has nobody else. The servers then
run as the system account `saga-db`, made on first use. The home may lie below a folder that
this account cannot enter (a 0700 home or temporary folder): instead of opening other
people's folders, the servers keep one capability that lets them pass. See
docs/decisions/0012-embedded-servers.md.
"""

from __future__ import annotations

import ctypes
import os
import pwd
import shutil
import signal
import stat
import subprocess
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path

from saga_console.locks import locked

ACCOUNT = "saga-db"
# Root's own, and nobody else may write there: who could, could choose what the servers run.
SHELF = Path("/var/lib/saga-console")
_PR_SET_PDEATHSIG = 1
# Bits of /proc/self/status, from linux/capability.h. Reading is enough where it can be had;
# Docker's default set has only the wider one.
_PASSES = (("dac_read_search", 2), ("dac_override", 1))


class CannotDropRoot(RuntimeError):
    """The console is root and has no way to run PostgreSQL as somebody else."""


class NotOurs(RuntimeError):
    """A folder that the servers need is in the hands of another account."""


def is_root() -> bool:
    return os.geteuid() == 0


@cache
def server_account() -> pwd.struct_passwd:
    """The account that owns the embedded servers and their files."""
    if not is_root():
        return pwd.getpwuid(os.geteuid())
    with suppress(KeyError):
        return pwd.getpwnam(ACCOUNT)
    # Two keepers start side by side, and two useradd at once both succeed, the second with
    # another number than the first: then the first server's files belong to nobody.
    SHELF.mkdir(mode=0o755, parents=True, exist_ok=True)
    with locked(SHELF / "account.lock"):
        with suppress(KeyError):
            return pwd.getpwnam(ACCOUNT)
        return _create_account()


def administration(name: str) -> str | None:
    """Where a program of the system's administration is, also for a root whose PATH lacks sbin
    (`su` without a dash leaves the caller's)."""
    return shutil.which(name, path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin")


def _create_account() -> pwd.struct_passwd:
    useradd = administration("useradd")
    if useradd:
        no_login = ("--system", "--no-create-home", "--shell", "/usr/sbin/nologin")
        subprocess.run([useradd, *no_login, "--user-group", ACCOUNT], check=False)  # noqa: S603
    for name in (ACCOUNT, "nobody"):
        try:
            return pwd.getpwnam(name)
        except KeyError:
            continue
    raise CannotDropRoot(
        "PostgreSQL does not run as root, and no other account could be found or made: "
        "run the console as an ordinary user"
    )


def hand_over(path: Path) -> None:
    """Make a folder and give it to the server's account, closed to everybody else.

    In a temporary folder anybody may have put something there first: what is not ours, or is
    a link, is refused rather than taken over.
    """
    account = server_account()
    path.parent.mkdir(parents=True, exist_ok=True)
    with suppress(FileExistsError):
        path.mkdir(mode=0o700)
    found = path.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid not in {os.geteuid(), account.pw_uid}:
        raise NotOurs(f"{path} belongs to somebody else: remove it, or choose another SAGA_HOME")
    if is_root():
        os.chown(path, account.pw_uid, account.pw_gid, follow_symlinks=False)
    path.chmod(0o700)


def command_for_server(argv: Sequence[str], *, dies_with_parent: signal.Signals) -> list[str]:
    """`argv`, wrapped so that it runs as the server's account when the console is root.

    A change of account clears the parent-death signal, so the wrapper sets it again.
    """
    if not is_root():
        return list(argv)
    setpriv = shutil.which("setpriv")
    if not setpriv:
        raise CannotDropRoot(
            "PostgreSQL does not run as root, and `setpriv` (util-linux) is not here to change "
            "the account: run the console as an ordinary user"
        )
    account = server_account()
    drop = [f"--reuid={account.pw_uid}", f"--regid={account.pw_gid}", "--clear-groups"]
    guard = f"--pdeathsig={dies_with_parent.name.removeprefix('SIG')}"
    return [setpriv, *drop, guard, *_passage(), "--", *argv]


@cache
def _passage() -> list[str]:
    permitted = 0
    for line in Path("/proc/self/status").read_text(encoding="ascii").splitlines():
        if line.startswith("CapPrm:"):
            permitted = int(line.split()[1], 16)
    for name, bit in _PASSES:
        if permitted >> bit & 1:
            return [f"--inh-caps=+{name}", f"--ambient-caps=+{name}"]
    return []


def parent_death(signal_number: signal.Signals) -> Callable[[], None]:
    """For `preexec_fn`: the kernel sends this signal to the child when its parent dies.

    Linux only; elsewhere the child is merely orphaned.
    """
    libc = ctypes.CDLL(None, use_errno=True)

    def ask_the_kernel() -> None:
        prctl = getattr(libc, "prctl", None)
        if prctl is not None:
            prctl(_PR_SET_PDEATHSIG, int(signal_number), 0, 0, 0)

    return ask_the_kernel
