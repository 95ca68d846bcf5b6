"""The supervisor, with small real programs as its children."""

from __future__ import annotations

import os
import signal
import sys
import time

import pytest

from saga_console.children import Child
from saga_console.supervisor import Supervisor, Voice


def program(name: str, code: str, **how: object) -> Child:
    return Child(name, [sys.executable, "-uc", code], os.environ, grace_s=5, **how)  # type: ignore[arg-type]


@pytest.fixture
def boss():
    supervisor = Supervisor(Voice(["saga", "one", "two"]))
    with supervisor.listening():
        yield supervisor
    supervisor.stop(supervisor.children)


def test_a_crashed_child_is_started_again_and_that_is_said(boss, capsys) -> None:
    child = program("one", "import time; print('hello'); time.sleep(60)")
    boss.add(child)
    first = child.process
    assert first is not None
    os.kill(first.pid, signal.SIGKILL)
    boss.run(until=lambda: child.process is not first and child.is_running)
    said = capsys.readouterr().out
    assert "one  | was ended by SIGKILL; starting it again in 0.2 s" in said


def test_a_child_that_keeps_failing_is_tried_less_and_less_often() -> None:
    child = program("one", "raise SystemExit(3)")
    child.start()
    assert child.process is not None
    child.process.wait()
    assert [child.plan_restart() for _ in range(6)] == [0.2, 1.0, 2.0, 5.0, 10.0, 10.0]


def test_output_comes_in_whole_lines_behind_a_padded_name(boss, capsys) -> None:
    boss.add(program("one", "print('a', end=''); print('b'); print('é')", at_its_end="stop"))
    boss.run()
    assert capsys.readouterr().out == "one  | ab\none  | é\n"
    assert boss.exit_status == 0


def test_a_signal_stops_the_groups_in_order(boss, capsys) -> None:
    code = """
import signal, sys, time
def end(*_): print('bye'); sys.exit()
signal.signal(signal.SIGTERM, end)
print('hi')
time.sleep(60)
"""
    one, two = program("one", code), program("two", code)
    boss.add(one)
    boss.add(two)
    heard: list[str] = []
    deadline = time.monotonic() + 20
    while len(heard) < 2 and time.monotonic() < deadline:
        boss.run(until=lambda: True)
        boss._listen(0.2)
        heard += [line for line in capsys.readouterr().out.splitlines() if line.endswith("hi")]
    os.kill(os.getpid(), signal.SIGTERM)
    boss.run()
    boss.stop([two], [one])
    assert capsys.readouterr().out.splitlines() == ["two  | bye", "one  | bye"]


def test_what_a_second_signal_kills_is_not_started_again(boss, capsys) -> None:
    """Both in the same moment: the children are dead before the stop has begun."""
    child = program("one", "import time; time.sleep(60)")
    boss.add(child)
    process = child.process
    assert process is not None

    def twice() -> bool:
        os.kill(os.getpid(), signal.SIGINT)
        os.kill(os.getpid(), signal.SIGINT)
        process.wait(10)
        return False

    boss.run(until=twice)
    assert process.returncode == -signal.SIGKILL
    assert child.process is process
    assert "starting it again" not in capsys.readouterr().out


def test_who_does_not_end_within_its_grace_is_killed(boss, capsys) -> None:
    code = "import signal, time; signal.signal(15, signal.SIG_IGN); print('hi'); time.sleep(60)"
    child = program("one", code)
    child.grace_s = 0.3
    boss.add(child)
    while "hi" not in capsys.readouterr().out:
        boss._listen(0.2)
    boss.stop([child])
    assert "did not end within 0.3 s: killed" in capsys.readouterr().out
    assert child.process is not None
    assert child.process.returncode == -signal.SIGKILL


def test_a_child_whose_end_means_nothing_is_let_go(boss, capsys) -> None:
    boss.add(program("one", "print('done')", at_its_end="carry on"))
    boss.run(until=lambda: not boss.children)
    assert boss.exit_status is None
    assert capsys.readouterr().out == "one  | done\n"
