"""`manage.py drill`, with a worker in a process of its own, as an operator runs them."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest

from ledger.legs import DrillState
from ledger.models import Drill, Shift
from ledger.queries import drills
from saga_console.home import BASE_DIR
from tests.drillcast import Yard, yard
from tests.running import eventually
from tests.sockets import SocketTarget

__all__ = ["yard"]
LIFE = "from ledger.shift import ShiftLoop; from ledger.services import shifts; "
WORK = LIFE + "ShiftLoop(shifts.ring_row()).run()"


@pytest.fixture
def env(yard: Yard, console_env: dict[str, str]) -> dict[str, str]:
    more = {"CRM_AUTH": "Bearer sk_live_never", "SAGA_SHIFT_LINGER_S": "30"}
    quick = {"SAGA_SHIFT_LEASE_S": "1", "SAGA_TOOLS": str(yard.path)}
    return {**console_env, **more, **quick}


@pytest.fixture
def worker(env: dict[str, str]) -> Iterator[subprocess.Popen[bytes]]:
    """A shift in a process of its own; ended by its id."""
    process = subprocess.Popen(
        [sys.executable, "manage.py", "shell", "-c", WORK], cwd=BASE_DIR, env=env
    )
    eventually(lambda: Shift.objects.filter(started_at__isnull=False).exists(), "a shift")
    yield process
    process.kill()
    process.wait(10)


def manage(env: dict[str, str], *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "manage.py", "drill", *words],
        cwd=BASE_DIR,
        env=env,
        capture_output=True,
        text=True,
        timeout=90,
        check=False,
    )


def test_the_command_tells_every_leg_and_exits_0_when_it_worked(yard, env, worker) -> None:
    done = manage(env, "crm.customer", "--args", '{"email": "c-{drill}@example.com"}')
    assert done.returncode == 0, done.stdout + done.stderr
    lines = done.stdout.splitlines()
    assert lines[0] == f"crm.customer version 1, in {yard.sandbox}"
    assert [line.split()[0] for line in lines[1:-1]] == [
        *("execute", "found", "seen", "undo", "undone", "unseen")
    ]
    assert lines[-1] == "crm.customer: worked. Executed, undone, and seen to be gone."
    drill = Drill.objects.get()
    assert drill.asked_by.startswith("shell:")
    assert drill.args_text.startswith('{"email":"c-')


def test_all_drills_what_can_be_drilled_names_the_rest_and_exits_1_when_one_failed(
    yard, env, worker
) -> None:
    head = 'headers = { Authorization = "env:CRM_AUTH" }\n[tools."crm.blind".drill]'
    yard.write((f'customers/{{result.id}}"\n{head}', f'customers/not-{{result.id}}"\n{head}'))
    worker.kill()
    again = subprocess.Popen(
        [sys.executable, "manage.py", "shell", "-c", WORK], cwd=BASE_DIR, env=env
    )
    try:
        done = manage(env, "--all")
    finally:
        again.kill()
        again.wait(10)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "crm.homeless: declares no sandbox" in done.stderr
    ends = [line for line in done.stdout.splitlines() if line.startswith("crm.") and ": " in line]
    assert [line.split(".")[1].split()[0:2] for line in ends] == [
        ["blind:", "failed"],
        ["customer:", "worked"],
        ["letter:", "worked"],
    ]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["crm.homeless"], "declares no sandbox: add [tools."),
        (["crm.nobody"], "No tool 'crm.nobody' is registered here"),
        (["crm.customer", "--args", "{"], "JSON"),
        (["crm.customer", "--args", '{"mail": 1}'], "email"),
        ([], "Name one tool, or say --all"),
        (["crm.customer", "--all"], "Name one tool, or say --all"),
    ],
)
def test_a_wrong_command_says_so_and_asks_for_nothing(env, words, said) -> None:
    done = manage(env, *words)
    assert done.returncode == 1
    assert said in done.stderr
    assert not Drill.objects.exists()


def test_a_tools_file_that_cannot_be_used_is_said_in_a_line(env) -> None:
    """As where the environment of the console is missing: its secrets are named there."""
    without = {name: value for name, value in env.items() if name != "CRM_AUTH"}
    done = manage(without, "crm.customer")
    assert (done.returncode, "Traceback" in done.stderr) == (1, False)
    assert "the environment variable CRM_AUTH is not set" in done.stderr


def test_a_worker_that_is_killed_in_the_middle_leaves_interrupted(yard, env) -> None:
    target = SocketTarget(lambda caller: time.sleep(60))
    yard.write((f'base_url = "{yard.sandbox}"', f'base_url = "{target.url}"'))
    drill = yard.ask("crm.blind")
    process = subprocess.Popen(
        [sys.executable, "manage.py", "shell", "-c", WORK], cwd=BASE_DIR, env=env
    )
    eventually(lambda: bool(target.requests), "the call")
    process.send_signal(signal.SIGKILL)
    process.wait(10)
    assert state(drill) == DrillState.RUNNING
    eventually(lambda: state(drill) == DrillState.INTERRUPTED, "interrupted", within_s=10)
    target.close()


def state(drill) -> DrillState:
    found = drills.one(drill)
    assert found
    return found.state
