"""The embedded servers of a home: found, shared, stopped by the last, recovered."""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import stat
import subprocess
import sys
from pathlib import Path

import psycopg
import pytest
import redis

from saga_console import accounts
from saga_console.home import BASE_DIR, Home
from saga_console.servers import ServerUse
from tests.running import clean_env, eventually, is_kept, manage


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path / "home")


def postmaster(home: Home) -> int:
    return int((home.root / "postgres" / "postmaster.pid").read_text().splitlines()[0])


def keeper_of(home: Home) -> int:
    """The parent of the postmaster."""
    after_name = Path(f"/proc/{postmaster(home)}/stat").read_text().rsplit(")", 1)[1]
    return int(after_name.split()[1])


def answers(home: Home) -> bool:
    try:
        with psycopg.connect(home.database_url, connect_timeout=2) as connection:
            return connection.execute("SELECT 1").fetchone() == (1,)
    except psycopg.OperationalError:
        return False


@pytest.fixture
def using_postgres(home: Home):
    home.create()
    use = ServerUse(home, "postgres")
    use.acquire()
    yield use
    use.release()


def test_a_short_command_starts_the_servers_and_stops_them_again(home: Home) -> None:
    done = manage(home.root, "migrate", "--check")
    assert "Traceback" not in done.stderr
    assert (home.root / "postgres" / "PG_VERSION").exists()
    assert not is_kept(home.root, "postgres")
    assert not is_kept(home.root, "valkey")


def test_commands_side_by_side_never_stop_each_others_servers(home: Home) -> None:
    argv = [sys.executable, "manage.py", "shell", "-v", "0", "-c"]
    code = (
        "import time; from django.db import connection as c; time.sleep({}); c.ensure_connection()"
    )
    running = [
        subprocess.Popen(
            [*argv, code.format(seconds)],
            cwd=BASE_DIR,
            env=clean_env(home.root),
            stderr=subprocess.PIPE,
            text=True,
        )
        for seconds in (0, 0.5, 1.5, 0, 1)
    ]
    said = [process.communicate(timeout=60)[1] for process in running]
    assert [process.returncode for process in running] == [0] * 5, said
    assert not is_kept(home.root, "postgres")


def test_a_server_that_dies_is_started_again(home: Home, using_postgres: ServerUse) -> None:
    before = postmaster(home)
    os.kill(before, signal.SIGKILL)
    eventually(lambda: answers(home) and postmaster(home) != before, "Postgres is back")


def test_a_user_that_is_killed_leaves_nothing_running(home: Home) -> None:
    code = """
from saga_console.servers import ensure_servers
ensure_servers()
print('up', flush=True)
input()
"""
    user = subprocess.Popen(
        [sys.executable, "-c", code],
        cwd=BASE_DIR,
        env=clean_env(home.root),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert user.stdout is not None
    assert user.stdout.readline() == b"up\n"
    user.kill()
    user.communicate()
    eventually(lambda: not is_kept(home.root, "postgres"), "the keeper ends")
    eventually(lambda: not is_kept(home.root, "valkey"), "the keeper ends")
    assert not answers(home)


def test_a_killed_keeper_takes_its_server_along_and_the_next_user_recovers(home: Home) -> None:
    home.create()
    first = ServerUse(home, "postgres")
    first.acquire()
    with psycopg.connect(home.database_url, autocommit=True) as connection:
        connection.execute("CREATE TABLE note AS SELECT 'kept' AS text")
    os.kill(keeper_of(home), signal.SIGKILL)
    eventually(lambda: not first.is_kept(), "the keeper is gone")
    second = ServerUse(home, "postgres")
    second.acquire()
    with psycopg.connect(home.database_url) as connection:
        assert connection.execute("SELECT text FROM note").fetchone() == ("kept",)
    first.release()
    assert answers(home)
    second.release()
    assert not answers(home)


def test_a_long_lived_user_starts_a_killed_keeper_again(
    home: Home, using_postgres: ServerUse
) -> None:
    assert not using_postgres.look_after()
    os.kill(keeper_of(home), signal.SIGKILL)
    eventually(lambda: not using_postgres.is_kept(), "the keeper is gone")
    assert using_postgres.look_after()
    assert answers(home)


def test_a_socket_folder_that_was_planted_by_another_is_refused(tmp_path: Path) -> None:
    target = tmp_path / "elsewhere"
    target.mkdir(mode=0o755)
    (tmp_path / "sock").symlink_to(target)
    with pytest.raises(accounts.NotOurs):
        accounts.hand_over(tmp_path / "sock")
    assert stat.S_IMODE(target.stat().st_mode) == 0o755


def test_the_application_role_cannot_switch_triggers_off(
    home: Home, using_postgres: ServerUse
) -> None:
    with psycopg.connect(home.database_url, autocommit=True) as connection:
        facts = "SELECT current_setting('is_superuser'), current_setting('fsync')"
        assert connection.execute(facts).fetchone() == ("off", "on")
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            connection.execute("SET session_replication_role = 'replica'")


ASK_FOR_THE_ACCOUNT = """
import sys
from saga_console import accounts
accounts.ACCOUNT = sys.argv[1]
sys.stdin.readline()
print(accounts.server_account().pw_uid)
"""


def test_two_keepers_that_start_at_once_agree_on_the_servers_account() -> None:
    """useradd twice at once succeeds twice, with two numbers; the first one then owns files."""
    name = f"saga-t{os.getpid()}"
    argv = [sys.executable, "-c", ASK_FOR_THE_ACCOUNT, name]
    asking = [
        subprocess.Popen(
            argv, cwd=BASE_DIR, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        for _ in range(6)
    ]
    try:
        for one in asking:
            assert one.stdin
            one.stdin.write("now\n")
            one.stdin.flush()
        numbers = {one.communicate(timeout=60)[0].strip() for one in asking}
        expected = pwd.getpwnam(name).pw_uid if accounts.is_root() else os.geteuid()
        assert numbers == {str(expected)}
    finally:
        if accounts.is_root():
            subprocess.run([accounts.administration("userdel") or "userdel", name], check=False)


def test_a_deep_home_has_its_sockets_in_a_short_folder(tmp_path: Path) -> None:
    home = Home(tmp_path / ("deep" * 20) / ("deeper" * 10))
    assert home.sockets.parent != home.root
    home.create()
    use = ServerUse(home, "valkey")
    use.acquire()
    try:
        with redis.Redis.from_url(home.redis_url) as client:
            assert client.ping()
    finally:
        use.release()
        shutil.rmtree(home.sockets)


def test_the_secret_key_is_made_once_and_only_its_owner_reads_it(home: Home) -> None:
    key = home.secret_key()
    assert home.secret_key() == key
    assert len(key) >= 50
    assert stat.S_IMODE((home.root / "secret_key").stat().st_mode) == 0o600
