"""The API as its clients meet it: a real server, several processes, real sockets."""

from __future__ import annotations

import http.client
import json
import os
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from ledger.models import EffectClaim, Entry, Step
from saga_console.home import BASE_DIR
from tests.apicast import Caller, a_shift, tools_at
from tests.running import eventually, free_port
from tests.sockets import says_json, target

pytestmark = pytest.mark.django_db(transaction=True)
OK = says_json("200 OK", b'{"id":"note_1"}')
MEGABYTES = b'{"task_id":"t","name":"' + b"a" * 10_000_000 + b'"}'


class Web:
    """A granian with some processes on the test's database."""

    def __init__(self, port: int, token: str) -> None:
        self.port = port
        self.headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}

    def ask(
        self, method: str, path: str, body: Any = None, **headers: str
    ) -> tuple[int, dict[str, str], Any]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        raw = json.dumps(body).encode() if isinstance(body, dict) else body
        chunked = raw is not None and not isinstance(raw, bytes)
        try:
            # A server may refuse a long body before the client is done with sending it.
            with suppress(BrokenPipeError, ConnectionResetError):
                connection.request(
                    method, path, raw, self.headers | headers, encode_chunked=chunked
                )
            answer = connection.getresponse()
            return answer.status, dict(answer.headers), json.loads(answer.read() or b"null")
        finally:
            connection.close()

    def propose(self, saga: str, step: dict[str, Any], **headers: str) -> tuple[int, Any]:
        status, _, document = self.ask("POST", f"/api/v1/sagas/{saga}/steps", step, **headers)
        return status, document


@contextmanager
def web(env: dict[str, str], tools: str, token: str, processes: int) -> Iterator[Web]:
    port = free_port()
    argv = [sys.executable, "-m", "granian", "--interface", "wsgi", "--http", "1", "--no-ws"]
    argv += ["--port", str(port), "--workers", str(processes), "--blocking-threads", "16"]
    argv += ["--log-level", "error", "saga_console.wsgi:application"]
    server = subprocess.Popen(argv, cwd=BASE_DIR, env=env | {"SAGA_TOOLS": tools})
    running = Web(port, token)

    def answers() -> bool:
        with suppress(OSError):
            return running.ask("GET", "/healthz")[0] == 200
        return False

    try:
        eventually(answers, "the web server answers")
        yield running
    finally:
        server.terminate()
        server.wait(20)


@pytest.fixture
def tools_file(settings: Any, tmp_path: Path) -> Iterator[str]:
    with target(OK) as notes, tools_at(settings, tmp_path, notes.url):
        yield os.fspath(settings.SAGA_TOOLS)


def test_every_way_to_send_a_body_is_bounded(
    agent: Caller, console_env: dict[str, str], tools_file: str
) -> None:
    def pieces(whole: bytes) -> Iterator[bytes]:
        for start in range(0, len(whole), 60_000):
            yield whole[start : start + 60_000]

    good = b'{"task_id":"chunked","name":"n"}'
    with web(console_env, tools_file, str(agent.token), 1) as server:
        status, _, saga = server.ask("POST", "/api/v1/sagas", iter([good[:7], good[7:]]))
        assert (status, saga["task_id"]) == (201, "chunked")
        for body in (MEGABYTES, pieces(MEGABYTES)):
            status, headers, problem = server.ask("POST", "/api/v1/sagas", body)
            assert (status, headers["content-type"]) == (413, "application/problem+json")
            assert problem["type"].endswith("too-large")
        for wrong in (b"", b"{", b"\xff", b"[" * 100_000):
            assert server.ask("POST", "/api/v1/sagas", wrong)[0] == 400
        assert server.ask("GET", "/api/v1/nothing")[0] == 404
        assert server.ask("GET", "/api/v1/sagas", Authorization="Bearer \xff")[0] == 401
        assert len(server.ask("GET", "/api/v1/sagas")[2]["items"]) == 1


@pytest.mark.parametrize("processes", [1, 4])
def test_50_submits_of_one_effect_from_two_sagas_are_one_proposal(
    agent: Caller, console_env: dict[str, str], tools_file: str, processes: int
) -> None:
    sagas = [agent.open("first"), agent.open("second")]
    answers: list[tuple[int, Any]] = []
    barrier = threading.Barrier(50)
    step = {"step_id": "s1", "tool": "notes.once", "args": {"id": "a"}}

    with web(console_env, tools_file, str(agent.token), processes) as server:

        def ask(number: int) -> None:
            barrier.wait(60)
            answers.append(server.propose(sagas[number % 2], step))

        threads = [threading.Thread(target=ask, args=[number]) for number in range(50)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(120)
    assert Counter(status for status, _ in answers) == {202: 1, 409: 49}
    assert Entry.objects.filter(kind="step.proposed").count() == 1
    assert EffectClaim.objects.count() == 1
    first = str(Step.objects.get().pk)
    assert {document["step"]["id"] for status, document in answers if status == 409} == {first}


def test_a_waiter_in_another_process_is_told_at_once(
    agent: Caller, console_env: dict[str, str], tools_file: str, settings: Any
) -> None:
    saga = agent.open()
    with web(console_env, tools_file, str(agent.token), 1) as server, a_shift(settings):
        for number in range(3):
            step = {"step_id": f"s{number}", "tool": "notes.add", "args": {"id": str(number)}}
            status, document = server.propose(saga, step, Prefer="wait=20")
            assert (status, document["state"]) == (200, "committed")
