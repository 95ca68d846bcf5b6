"""Who talks to a console while it is being beaten: forgetful agents, people, an operator.

All of them over plain REST, and all of them stubborn: whoever gets no answer asks again.
"""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import httpx

TOOLS = {
    "book.plain": 5.0,
    "book.dedupes": 5.0,
    "book.once": 3.0,
    "book.grave": 1.0,
    "book.letter": 0.7,
    "book.blind": 0.3,
    "book.refused": 0.5,
}
# A console that does not answer for this long has not recovered.
PATIENCE_S = 120.0
# An operator looks at the target before answering, and not while a stopped worker may wake.
LOOKED_AFTER_S = 20.0


@dataclass
class World:
    """What all of them share: where the console is, what was promised, and what was seen."""

    url: str
    book: str
    # (saga, step_id) -> the tool and the state that the first answer told.
    promised: dict[tuple[str, str], str] = field(default_factory=dict)
    sagas: list[str] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)
    # What both agents of a pair want, under one effect key.
    shared: list[str] = field(default_factory=list)
    # Steps that a person has sent back: (saga, step_id, tool, args).
    changes: list[tuple[str, str, str, dict[str, Any]]] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)


class Caller:
    """A token, and the patience to ask until there is an answer."""

    def __init__(self, world: World, token: str, seed: int, is_over: Callable[[], bool]) -> None:
        self.world = world
        self.is_over = is_over
        self.dice = random.Random(seed)
        self.client = httpx.Client(
            base_url=f"{world.url}/api/v1/",
            headers={"Authorization": f"Bearer {token}"},
            timeout=15,
        )

    def ask(self, method: str, path: str, body: Any = None) -> httpx.Response:
        """An answer below 500 that says something, however often it takes.

        A saga that a stopped process holds is answered with 409 and no step: nothing was promised,
        ask again (docs/recovery.md).
        """
        until = time.monotonic() + PATIENCE_S
        while True:
            try:
                answer = self.client.request(method, path, json=body)
                said = f"{answer.status_code} {answer.text[:200]}"
                if _is_held(answer):
                    self.world.counts["answered 409: held by another"] += 1
                elif answer.status_code < 500:
                    return answer
                else:
                    self.world.counts[f"answered {answer.status_code}"] += 1
            except httpx.TransportError as error:
                said = repr(error)
                self.world.counts["no answer"] += 1
            if time.monotonic() > until:
                self.world.wrong.append(f"no answer to {method} {path} in {PATIENCE_S} s: {said}")
                raise NoAnswer(said)
            time.sleep(self.dice.uniform(0.1, 0.5))


def _is_held(answer: httpx.Response) -> bool:
    if answer.status_code != 409:
        return False
    told = answer.json()
    return bool(told["type"].endswith("/step-in-flight") and "step" not in told)


class NoAnswer(Exception):
    """The console has not come back."""


class Agent(Caller):
    """It forgets what it has asked, and asks again; it rewords; it wants what another has."""

    name, tasks, pause_s = "", 0, 1.0

    def run(self) -> None:
        while not self.is_over():
            try:
                self.one_task()
            except NoAnswer:
                return

    def one_task(self) -> None:
        self.tasks += 1
        body = {"task_id": f"{self.name}-{self.tasks}", "name": "Soak", "retry_budget": 200}
        answers = [self.ask("POST", "sagas", body) for _ in range(self.dice.choice([1, 1, 1, 2]))]
        sagas = {answer.json()["id"] for answer in answers}
        if len(sagas) != 1:
            self.world.wrong.append(f"one task opened {len(sagas)} sagas: {sagas}")
        saga = sagas.pop()
        self.world.sagas.append(saga)
        for n in range(self.dice.randint(1, 4)):
            self.one_step(saga, f"s{n}")
            time.sleep(self.dice.uniform(0.2, 1.8) * self.pause_s)
        self.answer_changes()
        if self.dice.random() < 0.2:
            self.ask("POST", f"sagas/{saga}/abort", {"reason": "changed its mind"})
        self.ask("POST", f"sagas/{saga}/complete")

    def one_step(self, saga: str, step_id: str) -> None:
        (tool,) = self.dice.choices(list(TOOLS), list(TOOLS.values()))
        args: dict[str, Any] = {"what": f"{self.name}-{self.tasks}-{step_id}"}
        if tool == "book.once":
            args["what"] = self.what_another_wants_too(args["what"])
        step = {"step_id": step_id, "tool": tool, "args": args, "reason": "soak"}
        for _ in range(self.dice.choice([1, 1, 1, 2, 3])):
            answer = self.ask("POST", f"sagas/{saga}/steps", step)
            self._note(saga, step_id, tool, answer)
        if self.dice.random() < 0.1:
            reworded = step | {"args": args | {"note": "in other words"}}
            self._note_reworded(saga, step_id, self.ask("POST", f"sagas/{saga}/steps", reworded))

    def what_another_wants_too(self, mine: str) -> str:
        with self.world.lock:
            if self.world.shared and self.dice.random() < 0.6:
                return self.world.shared.pop(0)
            self.world.shared.append(mine)
            return mine

    def _note(self, saga: str, step_id: str, tool: str, answer: httpx.Response) -> None:
        """A promise is a promise from the first answer that makes it."""
        self.world.counts["asked"] += 1
        told = answer.json()
        kind = told.get("type", "").rpartition("/")[2]
        if answer.status_code in (200, 202) or kind == "step-in-flight":
            step = told if "step_id" in told else told.get("step", {})
            if step.get("effect_of") or step.get("saga_id") not in (None, saga):
                self.world.counts["answered with another's step"] += 1
            else:
                self.world.promised.setdefault((saga, step_id), tool)
        elif kind not in ("saga-ended", "effect-claimed", "previously-rejected", "step-mismatch"):
            self.world.wrong.append(f"{answer.status_code} {answer.text[:300]}")
        if answer.headers.get("Idempotent-Replayed"):
            self.world.counts["replayed"] += 1

    def _note_reworded(self, saga: str, step_id: str, answer: httpx.Response) -> None:
        """Refused, unless a person has just asked for a change or nothing was there before."""
        self.world.counts["reworded"] += 1
        kind = answer.json().get("type", "").rpartition("/")[2]
        if (saga, step_id) in self.world.promised and answer.status_code == 200:
            self.world.wrong.append(f"reworded args were answered as a replay: {answer.text[:300]}")
        self.world.counts[f"reworded: {kind or answer.status_code}"] += 1

    def answer_changes(self) -> None:
        with self.world.lock:
            mine, self.world.changes = self.world.changes, []
        for saga, step_id, tool, args in mine:
            step = {
                "step_id": step_id,
                "tool": tool,
                "args": args | {"note": f"as you wish, {time.time_ns()}"},
            }
            answer = self.ask("POST", f"sagas/{saga}/steps", step)
            if answer.status_code == 404:  # another agent's: let that one find it
                with self.world.lock:
                    self.world.changes.append((saga, step_id, tool, args))
            self.world.counts["revised"] += answer.status_code == 202


class Approver(Caller):
    """A person with an inbox."""

    def run(self) -> None:
        while not self.is_over():
            time.sleep(self.dice.uniform(0.5, 1.5))
            try:
                self.once()
            except NoAnswer:
                return

    def once(self) -> None:
        waiting = self.ask("GET", "approvals?state=pending").json()["items"]
        for request in waiting[: self.dice.randint(1, 20)]:
            is_mine = request["can_decide"]
            if is_mine:
                self.decide(request)

    def decide(self, request: dict[str, Any]) -> None:
        chosen = self.dice.choices(["approve", "reject", "request-change"], [85, 10, 5])[0]
        seen = {"args_digest": request["args_digest"], "reason": "seen"}
        answer = self.ask("POST", f"approvals/{request['id']}/{chosen}", seen)
        self.world.counts[f"{chosen}: {answer.status_code}"] += 1
        if chosen == "request-change" and answer.status_code == 200:
            with self.world.lock:
                self.world.changes.append(
                    (request["saga_id"], request["step_id"], request["tool"], request["args"])
                )


class Oncall(Caller):
    """Somebody who looks at the target, and then says what is so."""

    since: dict[str, float] = {}

    def run(self) -> None:
        while not self.is_over():
            time.sleep(2)
            try:
                self.once()
            except NoAnswer:
                return

    def once(self) -> None:
        found = self.ask("GET", "sagas?state=stuck&limit=100").json()["items"]
        now = time.monotonic()
        self.since = {saga["id"]: self.since.get(saga["id"], now) for saga in found}
        for saga in found:
            if now - self.since[saga["id"]] > LOOKED_AFTER_S:
                for step in saga["steps"]:
                    if step["state"] in ("unknown", "stuck", "compensating"):
                        self.answer_for(step)

    def answer_for(self, step: dict[str, Any]) -> None:
        key = step["idempotency_key"]
        forward = self._booked(key, "effects")
        if step["state"] == "compensating" or (step["state"] == "stuck" and step["result"]):
            found = self._booked(f"comp:{key}", "undos") or self._booked(f"corr:{key}", "undos")
        else:
            found = forward
        said: dict[str, Any] = {"answer": "did_not_happen", "reason": "looked there: nothing"}
        if found:
            said = {"answer": "happened", "result": found[0], "reason": "looked there"}
        answer = self.ask("POST", f"steps/{step['id']}/resolve", said)
        self.world.counts[f"resolve {said['answer']}: {answer.status_code}"] += 1

    def _booked(self, key: str, noun: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = []
        for kind in ("plain", "dedupes"):
            path = f"{self.world.book}/{kind}/{noun}"
            found += httpx.get(path, params={"key": key}, timeout=10).json()["data"]
        return found
