"""Olivia, the demo's operator: reads what waits, and says yes to it, all through REST.

She is not the agent's owner (the console would refuse her), and she posts the digest that
she was shown: had the step changed in between, her yes would be refused as stale.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, Self

import httpx

# An agent's demo is no contest; half a second is quick for a person.
LOOK_EVERY_S = 0.4


class Approver:
    """Approves what the stories of one run ask, until stopped. Use as a context manager.

    Nothing else: what waits from a start before, or for an agent of the reader's own, waits for
    a person.
    """

    def __init__(self, url: str, token: str, say: Callable[[str], None], *, run: str) -> None:
        self.http = httpx.Client(
            base_url=f"{url.rstrip('/')}/api/v1",
            headers={"Authorization": f"Bearer {token}"},
            timeout=20,
            trust_env=False,
        )
        self.say = say
        self.run = run
        self._tasks: dict[str, str] = {}
        self.approved: list[Any] = []
        self._told: set[str] = set()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._work, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()
        self.http.close()

    def run_once(self) -> int:
        """Decide what waits now; returns how many requests were approved."""
        waiting = self._get("/approvals?state=pending")["items"]
        mine = [one for one in waiting if self._is_of_this_run(one["saga_id"])]
        # In full, as whoever decides should read it.
        return sum(self._approve(self._get(f"/approvals/{one['id']}")) for one in mine)

    def _is_of_this_run(self, saga: str) -> bool:
        """Every task of the stories has the run's name in its own (agent.py)."""
        if saga not in self._tasks:
            self._tasks[saga] = self._get(f"/sagas/{saga}")["task_id"]
        return self.run in self._tasks[saga].split("-")

    def _get(self, path: str) -> Any:
        answer = self.http.get(path)
        answer.raise_for_status()
        return answer.json()

    def _approve(self, request: Any) -> bool:
        body = {
            "reason": "Demo: as agreed with the customer",
            "args_digest": request["args_digest"],
        }
        answer = self.http.post(f"/approvals/{request['id']}/approve", json=body)
        what = described(request)
        if answer.is_success:
            self.approved.append(request)
            self.say(f"approves {what}")
        else:
            self._once(f"could not approve {what}: {answer.status_code} {answer.text[:300]}")
        return answer.is_success

    def _work(self) -> None:
        while not self._stop.wait(LOOK_EVERY_S):
            try:
                self.run_once()
            except (httpx.HTTPError, ValueError, KeyError) as error:
                self._once(f"cannot read the inbox: {error!r}")

    def _once(self, line: str) -> None:
        """Say what has gone wrong, but not again at every look."""
        if line not in self._told:
            self._told.add(line)
            self.say(line)


def described(request: Any) -> str:
    """What is asked, in a line: the tool, whether it goes back, and its arguments."""
    way = request.get("direction", "forward")
    tool = request["tool"] if way == "forward" else f"the {NOUNS[way]} of {request['tool']}"
    args = ", ".join(f"{name} {' '.join(str(v).split())}" for name, v in request["args"].items())
    return f"{tool}: {args}"


NOUNS = {"compensate": "undoing", "correct": "correction"}
