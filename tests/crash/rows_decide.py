"""P23: at the gate, while a person's answer is written."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

import httpx

from tests.crash.rows import Play, Row, Stage
from tests.crash.rows_accept import Asking
from tests.crash.story import Story
from tests.running import eventually

CALLERS = 8


def deciding(fault: str) -> Play:
    """A person's yes is written and not committed: the web server dies, or its COMMIT is lost."""

    def play(stage: Stage, kind: str) -> None:
        story, request = _asked(stage, kind)
        yes = {"reason": "seen", "args_digest": request["args_digest"]}
        path = f"approvals/{request['id']}/approve"
        stage.lane.arm("P23")
        asking = Asking(story, path, yes, person=True)
        caught = stage.lane.caught("P23")
        if fault == "SIGKILL":
            stage.struck(caught.kill())
        else:
            cable = stage.lane.cables["web"]
            cable.lost.clear()
            cable.lose = "answer" if fault == "answer" else "request"
            stage.struck(caught.let_go())
            assert cable.lost.wait(10), "no COMMIT was lost"
        asking.join(20)
        eventually(lambda: _decided(story, path, yes), "the same yes is taken")
        _ran_once(stage, story)

    return play


def _decided(story: Story, path: str, yes: dict[str, Any]) -> bool:
    with suppress(httpx.TransportError):
        answer = story.approver.post(path, json=yes)
        assert answer.status_code in (200, 409, 503), answer.text
        return answer.status_code == 200
    return False


def _asked(stage: Stage, kind: str) -> tuple[Story, dict[str, Any]]:
    story = stage.story(kind)
    story.open(a="make", r="refund")
    request = story.request()
    story.wait_for("a", "committed")
    return story, request


def _ran_once(stage: Stage, story: Story) -> None:
    story.wait_for("r", "committed")
    assert story.kinds()["approval.approved"] == 1
    story.complete()
    stage.end(story, "completed")


def many_clicks(stage: Stage, kind: str) -> None:
    """The same yes eight times at once, while the worker that takes it is killed."""
    story, request = _asked(stage, kind)
    yes = {"reason": "seen", "args_digest": request["args_digest"]}
    path = f"approvals/{request['id']}/approve"
    stage.lane.arm("P12", "forward")
    with ThreadPoolExecutor(CALLERS) as pool:
        clicks = [pool.submit(story.approver.post, path, json=yes) for _ in range(CALLERS)]
    refused = [click.result().text for click in clicks if click.result().status_code != 200]
    assert not refused, refused
    stage.struck(stage.lane.caught("P12").kill())
    _ran_once(stage, story)


def yes_against_no(stage: Stage, kind: str) -> None:
    """A no that comes after the yes and before the claim wins; a killed worker changes nothing."""
    story, request = _asked(stage, kind)
    with stage.lane.without("worker-1", "worker-2"):
        assert story.approve(request).status_code == 200
        no = {"reason": "wait", "args_digest": request["args_digest"]}
        answer = story.approver.post(f"approvals/{request['id']}/reject", json=no)
        assert answer.status_code == 200, answer.text
        stage.struck()
    stage.end(story, "compensated")
    assert not stage.lane.target.done(story.names["r"])


ROWS = [
    Row("P23", "SIGKILL of the web server", "approved", "probed", deciding("SIGKILL")),
    Row("P23", "COMMIT done, answer lost", "approved", "probed", deciding("answer")),
    Row("P23", "COMMIT never arrived", "approved", "probed", deciding("request")),
    Row("P23", "8 clicks, then SIGKILL at P12", "approved", "probed", many_clicks),
    Row("P23", "a no after the yes", "approved", "probed", yes_against_no),
]
