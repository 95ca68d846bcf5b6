"""P0 to P3, P18 and P24: at the door, before and after a saga or a step is taken."""

from __future__ import annotations

import signal
import threading
import time
from contextlib import suppress
from typing import Any

import httpx

from tests.crash.rows import Play, Row, Stage
from tests.crash.story import Story


class Asking(threading.Thread):
    """One request that may never be answered."""

    def __init__(self, story: Story, path: str, body: dict[str, Any], person: bool = False) -> None:
        super().__init__(daemon=True)
        self.client = story.approver if person else story.client
        self.path = path
        self.body = body
        self.answer: httpx.Response | None = None
        self.start()

    def run(self) -> None:
        with suppress(httpx.TransportError):
            self.answer = self.client.post(self.path, json=self.body)


def _opened(story: Story) -> None:
    """Ask again for the whole saga, as an agent does that heard nothing."""
    answer = story.insist("POST", "sagas", json=story.body(a="make", b="make"))
    assert answer.status_code in (200, 201), answer.text
    story.saga = answer.json()["id"]


def opening(point: str) -> Play:
    """SIGKILL of the web server while a saga with two steps is opened."""

    def play(stage: Stage, kind: str) -> None:
        story = stage.story(kind)
        stage.lane.arm(point)
        Asking(story, "sagas", story.body(a="make", b="make"))
        stage.struck(stage.lane.caught(point).kill())
        _opened(story)
        story.complete()
        stage.end(story, "completed")

    return play


def proposing(point: str) -> Play:
    """SIGKILL of the web server while one more step is proposed."""

    def play(stage: Stage, kind: str) -> None:
        story = stage.story(kind)
        story.open(a="make")
        story.wait_for("a", "committed")
        step = story.step("b", "make")
        stage.lane.arm(point)
        Asking(story, f"sagas/{story.saga}/steps", step)
        stage.struck(stage.lane.caught(point).kill())
        answer = story.insist("POST", f"sagas/{story.saga}/steps", json=step)
        assert answer.status_code in (200, 202, 409), answer.text
        assert [s["step_id"] for s in story.document()["steps"]] == ["a", "b"]
        story.complete()
        stage.end(story, "completed")

    return play


def refused_first(stage: Stage, kind: str) -> None:
    """400 and 422 use no key up: the same step_id with good args is a first submission."""
    story = stage.story(kind)
    story.open()
    wrong = story.step("a", "make") | {"args": {"nonsense": 1}}
    assert story.client.post(f"sagas/{story.saga}/steps", json=wrong).status_code == 422
    raw = b'{"step_id": "a", "tool"'
    kind_of = {"Content-Type": "application/json"}
    half = story.client.post(f"sagas/{story.saga}/steps", content=raw, headers=kind_of)
    assert half.status_code == 400, half.text
    stage.struck()
    answer = story.propose("a", "make")
    assert answer.status_code == 202, answer.text
    assert story.kinds()["step.proposed"] == 1
    story.complete()
    stage.end(story, "completed")


def lock_held(stage: Stage, kind: str) -> None:
    """Somebody holds the saga beyond lock_timeout: 409 with Retry-After, and then it wins."""
    story = stage.story(kind)
    story.open()
    stage.lane.arm("P1")
    first = Asking(story, f"sagas/{story.saga}/steps", story.step("a", "make"))
    caught = stage.lane.caught("P1")
    second = story.propose("a", "make")
    assert second.status_code == 409, second.text
    assert "retry-after" in second.headers
    stage.struck(caught.let_go())
    first.join(10)
    assert first.answer is not None
    assert first.answer.status_code == 202, first.answer.text
    assert story.propose("a", "make").status_code in (200, 409)
    story.complete()
    stage.end(story, "completed")


def waits_and_wins(stage: Stage, kind: str) -> None:
    """The first of two same requests loses its connection: the second waited, and wins."""
    story = stage.story(kind)
    story.open()
    stage.lane.arm("P1")
    first = Asking(story, f"sagas/{story.saga}/steps", story.step("a", "make"))
    caught = stage.lane.caught("P1")
    second = Asking(story, f"sagas/{story.saga}/steps", story.step("a", "make"))
    time.sleep(0.3)
    stage.lane.cables["web"].cut()
    stage.struck(caught.let_go())
    for asked in (first, second):
        asked.join(20)
    answer = story.insist("POST", f"sagas/{story.saga}/steps", json=story.step("a", "make"))
    assert answer.status_code in (200, 202, 409), answer.text
    assert story.kinds()["step.proposed"] == 1
    story.complete()
    stage.end(story, "completed")


def lost_commit(loss: str, what: str) -> Play:
    """The COMMIT of a proposal: carried out and not answered, or never seen by the server."""

    def play(stage: Stage, kind: str) -> None:
        story = stage.story(kind)
        cable = stage.lane.cables["web"]
        if what == "step":
            story.open()
            body, path = story.step("a", "make"), f"sagas/{story.saga}/steps"
        else:
            body, path = story.body(a="make", b="make"), "sagas"
        stage.lane.arm("P1")
        asking = Asking(story, path, body)
        caught = stage.lane.caught("P1")
        cable.lost.clear()
        cable.lose = loss  # type: ignore[assignment]
        stage.struck(caught.let_go())
        assert cable.lost.wait(10), "no COMMIT was lost"
        asking.join(20)
        answer = asking.answer
        assert answer is not None
        # Read back by its key on a new connection, or told to send the same again.
        assert answer.status_code in (200, 201, 202, 503), answer.text
        if what == "step":
            again = story.insist("POST", path, json=body)
            assert again.status_code in (200, 202, 409), again.text
        else:
            _opened(story)
        assert story.kinds()["step.proposed"] == len(story.names)
        story.complete()
        stage.end(story, "completed")

    return play


def aborting(stage: Stage, kind: str) -> None:
    """SIGKILL of the web server while a saga is turned back."""
    story = stage.story(kind)
    story.open(a="make", b="make")
    story.wait_for("b", "committed")
    path, body = f"sagas/{story.saga}/abort", {"reason": "changed my mind"}
    stage.lane.arm("P18")
    Asking(story, path, body)
    stage.struck(stage.lane.caught("P18").kill())
    assert story.insist("POST", path, json=body).status_code == 200
    stage.end(story, "compensated")


def asked_after_all(stage: Stage, kind: str) -> None:
    """What was taken from the outbox is purged, everything restarts, and the agent asks again."""
    story = stage.story(kind)
    story.open(a="make", b="make")
    story.complete()
    story.wait_for_saga("completed")
    old = (
        "UPDATE ledger_outboxmessage SET taken_at = clock_timestamp() - interval '2 days' "
        "WHERE saga_id = %s RETURNING id"
    )
    assert len(stage.lane.sql(old, story.saga)) >= 2
    # By this command, or by the relay, whose own turn may come first.
    stage.lane.manage(
        "shell", "-c", "from ledger.services import sweeping as s; s.purge_messages()"
    )
    left = "SELECT 1 FROM ledger_outboxmessage WHERE saga_id = %s"
    assert not stage.lane.sql(left, story.saga)
    for program in stage.lane.programs.values():
        program.signal(signal.SIGKILL)
    stage.struck()
    again = story.insist("POST", f"sagas/{story.saga}/steps", json=story.step("a", "make"))
    assert again.status_code == 200, again.text
    assert again.headers["idempotent-replayed"] == "true"
    _opened(story)
    stage.end(story, "completed")


ROWS = [
    Row("P0", "SIGKILL of the web server", "forward", "probed", proposing("P0")),
    Row("P0", "400 and 422, then the same key", "forward", "probed", refused_first),
    Row("P1", "SIGKILL of the web server", "forward", "probed", opening("P1")),
    Row("P1", "SIGKILL, one more step", "forward", "dedupes", proposing("P1")),
    Row("P1", "lock held past lock_timeout", "forward", "probed", lock_held),
    Row("P1", "connection cut, second waits", "forward", "probed", waits_and_wins),
    Row("P2", "COMMIT done, answer lost: saga", "forward", "probed", lost_commit("answer", "saga")),
    Row("P2", "COMMIT never arrived: saga", "forward", "probed", lost_commit("request", "saga")),
    Row("P2", "COMMIT done, answer lost: step", "forward", "probed", lost_commit("answer", "step")),
    Row("P2", "COMMIT never arrived: step", "forward", "probed", lost_commit("request", "step")),
    Row("P3", "SIGKILL of the web server: saga", "forward", "probed", opening("P3")),
    Row("P3", "SIGKILL of the web server: step", "forward", "dedupes", proposing("P3")),
    Row("P18", "SIGKILL of the web server", "abort", "probed", aborting),
    Row("P24", "purge, restart, asked again", "forward", "probed", asked_after_all),
]
