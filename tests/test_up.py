"""`manage.py up`: one home, one console, and no data lost however it ends."""

from __future__ import annotations

import signal
import socket
from pathlib import Path

import psycopg
import pytest

from saga_console.home import Home
from tests.furnished import furnished
from tests.running import Up, eventually, is_kept, manage


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return furnished(tmp_path / "home")


@pytest.fixture
def empty(tmp_path: Path) -> Path:
    """No home yet: the first start makes it."""
    return tmp_path / "home"


def note(home: Path, text: str) -> None:
    with psycopg.connect(Home(home).database_url, autocommit=True) as connection:
        connection.execute("CREATE TABLE IF NOT EXISTS note (text text)")
        connection.execute("INSERT INTO note VALUES (%s)", [text])


def notes(home: Path) -> list[str]:
    with psycopg.connect(Home(home).database_url) as connection:
        return [text for (text,) in connection.execute("SELECT text FROM note")]


def test_a_second_console_on_the_same_home_is_refused_by_name(home: Path) -> None:
    with Up(home) as first:
        second = manage(home, "up", "--port", "1")
        assert second.returncode == 1
        assert second.stderr.count("\n") == 1
        assert f"process {first.process.pid}" in second.stderr
        assert first.is_running()


def test_a_clean_stop_ends_the_servers_and_a_restart_has_all_data(empty: Path) -> None:
    with Up(empty) as first:
        note(empty, "kept")
        assert first.stop(signal.SIGINT) == 0
        assert not is_kept(empty, "postgres")
        assert not is_kept(empty, "valkey")
    with Up(empty, port=first.port):
        assert notes(empty) == ["kept"]


def test_after_kill_9_of_the_supervisor_everything_ends_and_starts_again(home: Path) -> None:
    with Up(home) as first:
        note(home, "kept")
        first.stop(signal.SIGKILL)
        eventually(lambda: not is_kept(home, "postgres"), "the keeper stops the servers")
    with Up(home, port=first.port):
        assert notes(home) == ["kept"]


def test_a_taken_port_is_said_in_one_line(empty: Path) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        refused = manage(empty, "up", "--port", str(port))
    assert refused.returncode == 1
    assert f"127.0.0.1:{port}" in refused.stderr
    assert refused.stderr.count("\n") == 1


def test_a_port_that_is_no_number_is_said_in_one_line(empty: Path) -> None:
    refused = manage(empty, "up", PORT="http")
    assert refused.returncode == 1
    assert refused.stderr == "PORT: a whole number is needed, not 'http'\n"


@pytest.mark.parametrize("port", ["0", "99999", "-1"])
def test_a_port_that_there_is_not_is_said_in_one_line(empty: Path, port: str) -> None:
    refused = manage(empty, "up", f"--port={port}")
    assert refused.returncode == 1
    assert f"use a number from 1 to 65535, not {port}" in refused.stderr
    assert refused.stderr.count("\n") == 1


@pytest.mark.parametrize("secret", ["", "of its own"])
@pytest.mark.parametrize("place", ["a file", "/proc/nothing"])
def test_a_home_that_cannot_be_one_is_said_in_one_line(
    tmp_path: Path, place: str, secret: str
) -> None:
    (tmp_path / "a file").touch()
    refused = manage(tmp_path / place, "up", SECRET_KEY=secret)
    assert refused.returncode == 1
    assert refused.stderr.startswith(f"SAGA_HOME {tmp_path / place} cannot be used: ")
    assert refused.stderr.count("\n") == 1
