"""Agents that submit steps and wait for each result, as plain REST.

Every step has its own step_id and args; a saga is opened for each `STEPS_A_SAGA` of them and
completed after them. Every answer is checked: 200, committed, and the result it must have.
"""

from __future__ import annotations

import statistics
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from bench.line import Line, Reply

STEPS_A_SAGA = 50
_WAIT_S = 10


class WrongAnswer(RuntimeError):
    """The console answered otherwise than it must. The message shows the answer."""


@dataclass(frozen=True, slots=True)
class Latency:
    """Times of single requests, in ms."""

    count: int
    p50: float
    p99: float

    @classmethod
    def of(cls, seconds: list[float]) -> Latency:
        in_order = sorted(seconds)
        ninety_nine = in_order[min(len(in_order) - 1, round(0.99 * len(in_order)))]
        return cls(len(in_order), 1000 * statistics.median(in_order), 1000 * ninety_nine)


class Agent:
    """One caller with its own connection and its own sagas, of which no name comes twice."""

    def __init__(self, line: Line, name: str) -> None:
        self._line = line
        self._name = f"{name}-{uuid.uuid4()}"
        self._saga = ""
        self._number = 0

    def step(self) -> tuple[str, dict[str, Any]]:
        """The address and the body of the next step; opens its saga when one is needed."""
        if self._number % STEPS_A_SAGA == 0:
            self.complete()
            self._open()
        self._number += 1
        body = {
            "step_id": f"step-{self._number}",
            "tool": "bench.noop",
            "args": {"caller": self._name, "number": self._number},
        }
        return f"/api/v1/sagas/{self._saga}/steps", body

    def submit(self, path: str, body: dict[str, Any]) -> Reply:
        """Propose the step and wait for its result. Raises WrongAnswer."""
        reply = self._line.post(path, body, wait_s=_WAIT_S)
        _expect(reply, 200)
        document = reply.json()
        if document["state"] != "committed" or document["result"] != {**body["args"], "note": ""}:
            raise WrongAnswer(f"not the result of {body}: {document}")
        return reply

    def complete(self) -> None:
        """No more steps come in the saga that is open, if one is."""
        if self._saga:
            _expect(self._line.post(f"/api/v1/sagas/{self._saga}/complete", {}), 200)
            self._saga = ""

    def _open(self) -> None:
        asked = {"task_id": f"{self._name}-{self._number}", "name": "bench"}
        reply = self._line.post("/api/v1/sagas", asked)
        _expect(reply, 201)
        self._saga = reply.json()["id"]


def alone(port: int, token: str, count: int) -> Latency:
    """One caller's steps, one after another. Opening and completing sagas is not in the times."""
    with Line(port, token) as line:
        agent = Agent(line, "alone")
        times = [agent.submit(*agent.step()).seconds for _ in range(count)]
        agent.complete()
    return Latency.of(times)


def submit_until(port: int, token: str, number: int, stop_at: float) -> int:
    """One of many callers: the number of steps whose result came back, sagas and all."""
    done = 0
    with Line(port, token) as line:
        agent = Agent(line, f"caller-{number}")
        while time.monotonic() < stop_at:
            agent.submit(*agent.step())
            done += 1
        agent.complete()
    return done


def knock_until(port: int, token: str, _number: int, stop_at: float) -> int:
    """Requests that ask for nothing: what client and web server cost without any work."""
    done = 0
    with Line(port, token) as line:
        while time.monotonic() < stop_at:
            _expect(line.get("/healthz"), 200)
            done += 1
    return done


def replayed(port: int, token: str, count: int) -> tuple[Latency, int]:
    """Steps that have finished, submitted again; and how many steps there are in truth."""
    times = []
    with Line(port, token) as line:
        agent = Agent(line, "forgetful")
        finished = list(_finished(agent, min(count, STEPS_A_SAGA - 1)))
        for turn in range(count):
            path, body = finished[turn % len(finished)]
            reply = agent.submit(path, body)
            times.append(reply.seconds)
            if reply.headers.get("idempotent-replayed") != "true":
                raise WrongAnswer(f"a finished step did not replay: {reply.body!r}")
        agent.complete()
    return Latency.of(times), len(finished)


def _finished(agent: Agent, count: int) -> Iterator[tuple[str, dict[str, Any]]]:
    for _ in range(count):
        path, body = agent.step()
        agent.submit(path, body)
        yield path, body


def _expect(reply: Reply, status: int) -> None:
    if reply.status != status:
        raise WrongAnswer(f"{reply.status} instead of {status}: {reply.body[:2000]!r}")
