"""P18, P20, P21 and P22: turning back, undos that keep failing, alternatives, and the pivot."""

from __future__ import annotations

import time
from typing import Literal

from tests.crash.rows import Play, Row, Stage
from tests.crash.story import Story
from tests.crash.target import LATE_S, Mood
from tests.running import eventually

Fate = Literal["answers", "SIGKILL", "lost", "late"]
_MOODS: dict[Fate, Mood] = {"answers": "hold", "SIGKILL": "hold", "lost": "lost", "late": "late"}


def abort_in_flight(fate: Fate) -> Play:
    """The agent aborts while its second step is out: that is found out about first, then undone."""

    def play(stage: Stage, kind: str) -> None:
        story = stage.story(kind)
        target, name = stage.lane.target, f"{story.task}-b"
        mood = _MOODS[fate]
        if mood != "late":
            target.released.clear()
        target.expect(name, "make", mood)
        story.open(a="make", b="make", c="make")
        eventually(lambda: target.arrived[name, "make"] > 0, "the call is out")
        answer = story.client.post(f"sagas/{story.saga}/abort", json={"reason": "stop"})
        assert answer.status_code == 200, answer.text
        assert not target.done(f"{story.task}-a", "undo"), "undone past a step in flight"
        stage.struck()
        if fate in ("SIGKILL", "lost"):
            stage.lane.working_on(story.saga).kill()
        target.released.set()
        time.sleep(LATE_S if fate == "late" else 0)
        ends = ("stuck", "compensated") if kind == "blind" else ("compensated",)
        stage.end(story, *ends)
        assert story.states()["c"] == "cancelled"
        assert not target.done(story.names["c"]), "new forward work after the turn"

    return play


def undo_fails(fault: str) -> Play:
    """The undo of the last step is refused, or the target stays busy: a dead letter, visible, and
    the undo below it waits. When the target is mended an operator's retry ends it."""

    def play(stage: Stage, kind: str) -> None:
        story = stage.story(kind)
        target = stage.lane.target
        for step_id in ("a", "b", "c"):
            story.names[step_id] = f"{story.task}-{step_id}"
        target.expect(story.names["c"], "make", "refuse")
        target.always[story.names["b"], "undo"] = "refuse" if fault == "refused" else "busy"
        if fault == "busy, SIGKILL":
            stage.lane.arm("P13", "compensate")
        story.open(a="make", b="make", c="make")
        if fault == "busy, SIGKILL":
            stage.struck(stage.lane.caught("P13").kill())
        else:
            story.wait_for("b", "compensating", "stuck")
            stage.struck()
        stage.end(story, "stuck")
        assert not target.done(story.names["a"], "undo"), "undone out of order"
        took, effects = stage.took_s, stage.effects
        del target.always[story.names["b"], "undo"]
        # In doubt, and nobody can look: the person has looked. At this target that is safe.
        _press(stage, story, "b", "did_not_happen" if kind == "dedupes" else "")
        story.wait_for_saga("compensated")
        story.assert_sound()
        stage.took_s, stage.effects = took, effects

    return play


def _press(stage: Stage, story: Story, step_id: str, answer: str) -> None:
    """An operator answers on the Attention page, or presses "Try again"."""
    (step,) = [s["id"] for s in story.document()["steps"] if s["step_id"] == step_id]
    form = {"reason": "the target is mended"} | ({"answer": answer} if answer else {})
    form["csrfmiddlewaretoken"] = str(stage.oncall.cookies.get("csrftoken"))
    headers = {"Referer": f"{stage.lane.url}/attention/"}
    act = "resolve" if answer else "retry"
    page = stage.oncall.post(f"/attention/{step}/{act}", data=form, headers=headers)
    assert page.status_code == 200, page.text


def alternative(mood: Mood, *, dies: bool = False) -> Play:
    """A step with an alternative, whose first choice meets the mood. Never two bookings."""

    def play(stage: Stage, kind: str) -> None:
        target = stage.lane.target
        if mood == "hold":
            target.released.clear()
        story = _with_alternative(stage, kind, mood)
        eventually(lambda: target.arrived[f"{story.task}-a", "make"] > 0, "the first is out")
        stage.struck()
        if dies:
            stage.lane.working_on(story.saga).kill()
            target.released.set()
        _one_booking(stage, story, owned=mood == "refuse")

    return play


def second_choice_dies(stage: Stage, kind: str) -> None:
    """It is out, and held, before the trap is set: else the first one may fall into that."""
    target = stage.lane.target
    target.released.clear()
    story = _with_alternative(stage, kind, "refuse", own="hold")
    eventually(lambda: target.arrived[f"{story.task}-a", "own"] > 0, "the second is out")
    stage.lane.arm("P12", "forward")
    target.released.set()
    stage.struck(stage.lane.caught("P12").kill())
    _one_booking(stage, story, owned=True)


def _with_alternative(stage: Stage, kind: str, *make: Mood, own: Mood | None = None) -> Story:
    story = stage.story(kind)
    name = f"{story.task}-a"
    story.open()
    stage.lane.target.expect(name, "make", *make)
    if own:
        stage.lane.target.expect(name, "own", own)
    other = story.step("a", "own")
    story.propose("a", "make", alternatives=[{"tool": other["tool"], "args": other["args"]}])
    return story


def _one_booking(stage: Stage, story: Story, *, owned: bool) -> None:
    story.complete()
    stage.end(story, "completed")
    target, name = stage.lane.target, f"{story.task}-a"
    second = target.done(name, "own")
    assert len(target.done(name, "make")) + len(second) == 1, "two bookings"
    assert bool(second) == owned


def pivot_in_doubt(stage: Stage, kind: str) -> None:
    """While nobody knows about the pivot, an abort is refused, and nothing else starts."""
    story = stage.story(kind)
    target = stage.lane.target
    story.open(a="make")
    story.wait_for("a", "committed")
    name = story.names.setdefault("p", f"{story.task}-p")
    target.released.clear()
    target.expect(name, "pay", "hold")
    story.propose("p", "pay")
    story.propose("z", "make")
    eventually(lambda: target.arrived[name, "pay"] > 0, "the call is out")
    stage.struck(stage.lane.working_on(story.saga).kill())
    for _ in range(3):
        answer = story.client.post(f"sagas/{story.saga}/abort", json={"reason": "stop"})
        assert answer.status_code == 409, answer.text
        assert not target.done(f"{story.task}-a", "undo")
        assert not target.done(f"{story.task}-z")
        time.sleep(0.1)
    target.released.set()
    story.complete()
    stage.end(story, *(("stuck",) if kind == "blind" else ("completed",)))


def after_the_pivot(stage: Stage, kind: str) -> None:
    """A step after the pivot fails for good, and its worker dies: nothing before it is undone."""
    story = stage.story(kind)
    target = stage.lane.target
    story.open(a="make", p="pay")
    story.wait_for("p", "committed")
    target.expect(f"{story.task}-z", "make", "refuse")
    stage.lane.arm("P13", "forward")
    story.propose("z", "make")
    target.expect(f"{story.task}-z", "make", "refuse", "refuse", "refuse")
    stage.struck(stage.lane.caught("P13").kill())
    story.complete()
    stage.end(story, "stuck", "completed")
    assert not target.done(f"{story.task}-a", "undo"), "gone back over the pivot"


ROWS = [
    Row("P18", f"abort, the call in flight: {fate}", "abort", kind, abort_in_flight(fate))
    for fate in _MOODS
    for kind in ("dedupes", "probed", "blind")
    if not (kind == "blind" and fate == "late")
]
ROWS += [
    Row("P20", "the undo is refused", "compensate", "probed", undo_fails("refused")),
    Row("P20", "the target stays busy", "compensate", "probed", undo_fails("busy")),
    Row("P20", "busy, SIGKILL in between", "compensate", "dedupes", undo_fails("busy, SIGKILL")),
    Row("P21", "first choice: reset after", "alternative", "probed", alternative("reset")),
    Row("P21", "first choice: effect later", "alternative", "probed", alternative("late")),
    Row("P21", "first choice: SIGKILL", "alternative", "probed", alternative("hold", dies=True)),
    Row("P21", "first choice: reset after", "alternative", "dedupes", alternative("reset")),
    Row("P21", "second choice: SIGKILL, P12", "alternative", "probed", second_choice_dies),
    Row("P22", "SIGKILL, abort in doubt", "pivot", "dedupes", pivot_in_doubt),
    Row("P22", "SIGKILL, abort in doubt", "pivot", "probed", pivot_in_doubt),
    Row("P22", "SIGKILL, abort in doubt", "pivot", "blind", pivot_in_doubt),
    Row("P22", "failure after it, SIGKILL", "pivot", "probed", after_the_pivot),
]
