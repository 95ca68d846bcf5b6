"""One saga of a row: told over plain REST, and held against the invariants at its end."""

from __future__ import annotations

import time
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any
from uuid import uuid4

import httpx

from tests.crash.lane import PATIENCE_S, Lane
from tests.running import eventually

ENDED = ("completed", "compensated")
EXECUTED = ("committed", "compensating", "compensated", "corrected")
# What an undo or a correction does at the target, and to what.
ANSWERS = {"undo": "make", "sorry": "mail", "disown": "own"}


@dataclass
class Story:
    """A saga whose names at the target nobody else has."""

    lane: Lane
    agent: str
    person: str
    oncall: httpx.Client
    kind: str
    task: str = field(default_factory=lambda: uuid4().hex)
    saga: str = ""
    began: float = field(default_factory=time.monotonic)
    fault_at: float = 0.0
    names: dict[str, str] = field(default_factory=dict)

    @cached_property
    def client(self) -> httpx.Client:
        return self._client(self.agent)

    @cached_property
    def approver(self) -> httpx.Client:
        return self._client(self.person)

    def _client(self, token: str) -> httpx.Client:
        return httpx.Client(
            base_url=f"{self.lane.url}/api/v1/",
            headers={"Authorization": f"Bearer {token}"},
            timeout=15,
        )

    # -- telling it -----------------------------------------------------------------------

    def step(self, step_id: str, tool: str) -> dict[str, Any]:
        name = self.names.setdefault(step_id, f"{self.task}-{step_id}")
        return {"step_id": step_id, "tool": f"{self.kind}.{tool}", "args": {"name": name}}

    def body(self, **steps: str) -> dict[str, Any]:
        told = [self.step(step_id, tool) for step_id, tool in steps.items()]
        return {"task_id": self.task, "name": "Crash", "steps": told}

    def open(self, **steps: str) -> None:
        answer = self.client.post("sagas", json=self.body(**steps))
        assert answer.status_code == 201, answer.text
        self.saga = answer.json()["id"]

    def propose(self, step_id: str, tool: str, **more: Any) -> httpx.Response:
        step = self.step(step_id, tool) | more
        return self.client.post(f"sagas/{self.saga}/steps", json=step)

    def insist(self, method: str, path: str, **more: Any) -> httpx.Response:
        """Ask the same again until there is an answer, as agents do."""
        deadline = time.monotonic() + PATIENCE_S
        while True:
            with suppress(httpx.TransportError):
                answer = self.client.request(method, path, **more)
                busy = answer.status_code == 409 and "another request" in answer.text.lower()
                if answer.status_code not in (500, 502, 503) and not busy:
                    return answer
            assert time.monotonic() < deadline, f"no answer to {method} {path}"
            time.sleep(0.1)

    def complete(self) -> None:
        self.insist("POST", f"sagas/{self.saga}/complete")

    def request(self) -> dict[str, Any]:
        """What waits for a person in this saga."""
        found: list[dict[str, Any]] = []

        def is_there() -> bool:
            page = self.approver.get("approvals", params={"state": "pending"}).json()
            found[:] = [one for one in page["items"] if one["saga_id"] == self.saga]
            return bool(found)

        eventually(is_there, "a request waits for a person")
        return found[0]

    def approve(self, request: dict[str, Any]) -> httpx.Response:
        yes = {"reason": "seen", "args_digest": request["args_digest"]}
        return self.approver.post(f"approvals/{request['id']}/approve", json=yes)

    # -- reading it -----------------------------------------------------------------------

    def document(self) -> dict[str, Any]:
        return dict(self.insist("GET", f"sagas/{self.saga}").json())

    def states(self) -> dict[str, str]:
        return {step["step_id"]: step["state"] for step in self.document()["steps"]}

    def entries(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = []
        while True:
            after = found[-1]["seq"] if found else 0
            path = f"sagas/{self.saga}/ledger"
            page = self.insist("GET", path, params={"after": after}).json()
            if not page["items"]:
                return found
            found += page["items"]

    def kinds(self) -> Counter[str]:
        return Counter(entry["kind"] for entry in self.entries())

    def wait_for(self, step_id: str, *states: str) -> None:
        eventually(lambda: self.states()[step_id] in states, f"{step_id} {states}", PATIENCE_S)

    def wait_for_saga(self, state: str) -> None:
        eventually(lambda: self.document()["state"] == state, f"the saga is {state}", PATIENCE_S)

    # -- the invariants -------------------------------------------------------------------

    def rest(self, *states: str) -> str:
        """Until the saga has ended or waits for an operator; the state it came to rest in."""
        found = ""

        def is_at_rest() -> bool:
            nonlocal found
            found = self.document()["state"]
            return found in (*ENDED, "stuck")

        try:
            eventually(is_at_rest, "the saga comes to rest", PATIENCE_S)
        except AssertionError:
            told = [(e["kind"], e["step_id"]) for e in self.entries()]
            raise AssertionError(f"no rest: {found} {self.states()} {told}") from None
        assert not states or found in states, f"{found}, not {states}: {self.states()}"
        return found

    def assert_sound(self) -> None:
        """The invariants of docs/recovery.md, from the target's books and the saga's entries."""
        saga, entries = self.document(), self.entries()
        self._assert_chain(entries)
        undone = []
        for step in saga["steps"]:
            effects = self.lane.target.done(self.names[step["step_id"]])
            counts = Counter(effect.action for effect in effects)
            assert all(n == 1 for n in counts.values()), f"doubled: {counts}"
            forward = [e for e in effects if e.action not in ANSWERS]
            backward = [e for e in effects if e.action in ANSWERS]
            if step["state"] in EXECUTED:
                assert len(forward) == 1, f"{step['step_id']} is {step['state']} without its effect"
            if step["state"] in ("compensated", "corrected"):
                assert len(backward) == 1, f"{step['step_id']} was not undone at the target"
            undone += [(backward[0].at, forward[0].at)] if forward and backward else []
            self._assert_told(step, bool(forward), bool(backward), entries)
        pairs = sorted(undone)
        assert [at for _, at in pairs] == sorted((at for _, at in pairs), reverse=True), pairs
        self._assert_visible(saga)

    def _assert_chain(self, entries: list[dict[str, Any]]) -> None:
        head = "0" * 64
        for seq, entry in enumerate(entries, start=1):
            assert (entry["seq"], entry["prev_hash"]) == (seq, head)
            head = entry["hash"]

    def _assert_told(
        self, step: dict[str, Any], forward: bool, backward: bool, entries: list[dict[str, Any]]
    ) -> None:
        """An effect that was not undone is a fact of the ledger, or shown as a doubt."""
        kinds = Counter(e["kind"] for e in entries if e["step_id"] == step["step_id"])
        if forward:
            assert kinds["attempt.started"], "an effect without an intent"
            told = kinds["step.committed"] or step["state"] in ("unknown", "stuck")
            assert told, f"{step['step_id']} has an effect and is {step['state']}: {kinds}"
        if backward:
            ended = kinds["step.compensated"] or kinds["step.corrected"]
            assert ended or step["state"] in ("compensating", "stuck"), kinds

    def _assert_visible(self, saga: dict[str, Any]) -> None:
        """Not at an end: then a page shows it to operators, and says why."""
        if saga["state"] in ENDED:
            return
        assert saga["state"] == "stuck", saga["state"]
        page = self.oncall.get("/attention/")
        assert page.status_code == 200
        assert saga["id"] in page.text, "stuck, and the Attention page does not show it"
