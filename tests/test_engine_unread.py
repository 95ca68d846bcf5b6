"""A plain outcome is written without reading a row; whatever was told meanwhile, it is seen."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from uuid import UUID, uuid4

import pytest
from django.db import connection, transaction

from ledger import pipeline, storage
from ledger.models import Attempt, Entry, Saga, Step
from ledger.models.fields import ClockTimestamp
from ledger.outcomes import Done
from ledger.services import sweeping
from ledger.services.assignments import Assignment
from ledger.services.closing import complete
from ledger.services.opening import open_saga
from ledger.services.proposals import Opening, Proposal
from ledger.services.proposing import propose
from ledger.services.recording import Finished, record
from ledger.services.unit import Superseded, Unit
from ledger.statements import Statement
from ledger.states import StepState
from tests.approvalcast import agent, claim, tools
from tests.shop import assert_verifies

__all__ = ["tools"]
pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("tools")]
SHIFT = UUID(int=1)


@contextmanager
def trips() -> Iterator[list[Sequence[Statement]]]:
    """The statements of each trip to Postgres while the block lasts."""
    made: list[Sequence[Statement]] = []
    begun: list[Statement] = []
    run, ahead = pipeline.Channel.run, pipeline.Channel.ahead

    def counted(self: Any, statements: Any, *, commit: bool = False) -> Any:
        made.append([*begun, *statements])
        begun.clear()
        return run(self, statements, commit=commit)

    def noted(self: Any, statements: Any) -> Any:
        begun.extend(statements)
        return ahead(self, statements)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pipeline.Channel, "run", counted)
        patch.setattr(pipeline.Channel, "ahead", noted)
        yield made


class Story:
    """A saga whose only step is out."""

    def __init__(self) -> None:
        self.bearer = agent(f"agent-{uuid4().hex[:8]}")
        self.saga = open_saga(Opening(task_id="task", name=""), bearer=self.bearer).saga
        self.propose("one")
        (self.taken,) = claim()

    def propose(self, step_id: str) -> None:
        propose(self.saga, Proposal(step_id, "note.add", {"id": step_id}), bearer=self.bearer)

    def done(self, taken: Assignment | None = None) -> bool:
        # 1e23: Postgres keeps it as a whole number, which is another one to Python.
        return record(SHIFT, [Finished(taken or self.taken, Done({"id": "made", "n": 1e23}))])

    @property
    def states(self) -> list[str]:
        steps = Step.objects.filter(saga_id=self.saga).order_by("position")
        return [step.state for step in steps]

    def kinds(self) -> list[str]:
        return [entry.kind for entry in Entry.objects.filter(saga_id=self.saga).order_by("seq")]


def test_a_plain_outcome_is_one_trip_and_no_read() -> None:
    story = Story()
    with trips() as made:
        story.done()
    assert len(made) == 1
    assert not [sql for sql, _ in made[0] if sql.lstrip().startswith("SELECT")]
    assert story.states == ["committed"]
    assert (
        Step.objects.get(saga_id=story.saga).executed_seq
        == story.kinds().index("step.committed") + 1
    )
    assert_verifies()


def test_a_step_that_was_proposed_meanwhile_is_started() -> None:
    """It saw the first one at work, and waits: who ends that one must see it."""
    story = Story()
    story.propose("two")
    assert story.states == ["executing", "waiting"]
    assert story.done()
    assert story.states == ["committed", "queued"]
    (second,) = claim()
    story.done(second)
    assert story.states == ["committed", "committed"]
    assert_verifies()


def test_the_end_of_a_saga_that_was_said_meanwhile_is_seen() -> None:
    story = Story()
    complete(story.saga, bearer=story.bearer)
    story.done()
    assert Saga.objects.get(pk=story.saga).state == "completed"
    assert_verifies()


def test_a_proposal_that_is_being_committed_is_waited_for() -> None:
    """The number is looked at under the lock, and the other's COMMIT comes before that."""
    story = Story()
    holds, may_end = threading.Event(), threading.Event()

    def propose_slowly() -> None:
        with transaction.atomic():
            story.propose("two")
            holds.set()
            may_end.wait(30)
        connection.close()

    other = threading.Thread(target=propose_slowly)
    other.start()
    assert holds.wait(30)
    threading.Timer(0.3, may_end.set).start()
    assert story.done()
    other.join(30)
    assert story.states == ["committed", "queued"]
    assert_verifies()


def test_an_answer_after_the_lease_was_swept_is_evidence_and_no_more() -> None:
    story = Story()
    Attempt.objects.filter(pk=story.taken.attempt).update(lease_until=ClockTimestamp())
    assert story.taken.attempt is not None
    assert sweeping.expire_attempt(story.taken.attempt)
    story.done()
    story.done()
    assert story.kinds().count("attempt.late") == 1
    assert "step.committed" not in story.kinds()


def test_said_twice_it_is_written_once() -> None:
    """As after a COMMIT whose answer was lost."""
    story = Story()
    story.done()
    before = story.kinds()
    assert not story.done()
    assert story.kinds() == before


def test_of_many_only_those_whose_saga_moved_need_a_look() -> None:
    """They are written together all the same, and each as it should be."""
    stories = [Story() for _ in range(4)]
    stories[2].propose("two")
    record(SHIFT, [Finished(story.taken, Done({"id": "made"})) for story in stories])
    assert [story.states for story in stories] == [
        ["committed"],
        ["committed"],
        ["committed", "queued"],
        ["committed"],
    ]
    assert_verifies()


def test_sagas_are_locked_in_the_order_of_their_ids() -> None:
    """As everybody does, in whatever order the calls came back: else two wait in a ring."""
    stories = [Story() for _ in range(5)]
    finished = [Finished(story.taken, Done({"id": "made"})) for story in stories]
    with trips() as made:
        record(SHIFT, [finished[at] for at in (3, 0, 4, 1, 2)])
    (written,) = [values for sql, values in made[0] if "INTO ledger_entry" in sql]
    assert isinstance(written, dict)
    locked = [row["saga_id"] for row in json.loads(written["rows"])]
    assert locked == sorted(str(story.saga) for story in stories)


@pytest.mark.parametrize(
    ("known", "value"), [("was", StepState.QUEUED), ("fence_was", 99)], ids=["state", "fence"]
)
def test_one_row_that_is_not_as_it_was_known_is_not_written(known: str, value: object) -> None:
    """The statement of one row holds it against what was read, as that of many does."""
    story = Story()

    @storage.transition
    def stale() -> None:
        unit = Unit("worker:late")
        unit.lock_with_steps([story.taken.step])
        step = unit.steps[story.taken.step]
        setattr(step, known, value)
        step.held_why, step.dirty = "late", True
        unit.flush(last=True)

    with pytest.raises(Superseded):
        stale()
    assert not Step.objects.get(pk=story.taken.step).held_why
