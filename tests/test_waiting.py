"""Who waits for a step holds a thread and no connection: alone in the room, but for a moment."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any
from uuid import UUID, uuid4

import pytest
from django.db import connection

from ledger import storage, wake
from ledger.api import waiting
from ledger.api.prefer import Preference

pytestmark = pytest.mark.django_db(transaction=True)
WAITS = Preference(wait_s=30)


@pytest.fixture
def saga() -> UUID:
    return uuid4()


@pytest.fixture
def watch(saga: UUID) -> Iterator[wake.Watch]:
    """A seat of this thread, with the bell ringing as it does in a console that is up."""
    with wake.watching("nobody"):
        assert wake.hub().listening.wait(10)
    time.sleep(0.1)  # whoever registered before is told to look once; that shall be over
    with waiting.seat(WAITS, saga) as watch:
        assert watch is not None
        yield watch


class Looks:
    """A look that finds something the second time; whether each had the connection of before."""

    def __init__(self) -> None:
        connection.ensure_connection()  # as the proposal leaves it
        self.mine = connection.connection
        self.kept: list[bool] = []

    def __call__(self) -> str | None:
        self.kept.append(connection.connection is self.mine)
        connection.ensure_connection()
        return "found" if len(self.kept) == 2 else None


def kept_when_rung(watch: wake.Watch, after_s: float) -> list[bool]:
    """What two looks for a step see: one when the bell rings, one a while later."""
    step, looks = uuid4(), Looks()
    ringer = threading.Timer(after_s, watch.tell, [[str(step)]])
    ringer.start()
    try:
        assert waiting.for_a_new_step(watch, looks, 30, step=step) == "found"
    finally:
        ringer.join()
    return looks.kept


@pytest.fixture
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """The look that needs no bell comes early."""
    monkeypatch.setattr(wake, "SAFETY_NET_S", 1.5)


@pytest.mark.usefixtures("soon")
@pytest.mark.parametrize(
    ("keeps_s", "rings_after_s", "kept"),
    [
        pytest.param(20.0, 0.1, [True, False], id="a bell within it: for one look"),
        pytest.param(0.05, 0.6, [False, False], id="a bell after it: given back"),
    ],
)
def test_alone_it_is_kept_for_a_moment(
    watch: wake.Watch,
    monkeypatch: pytest.MonkeyPatch,
    keeps_s: float,
    rings_after_s: float,
    kept: list[bool],
) -> None:
    monkeypatch.setattr(waiting, "KEEPS_S", keeps_s)
    assert kept_when_rung(watch, rings_after_s) == kept


@pytest.mark.usefixtures("soon")
def test_a_bell_for_another_step_of_the_saga_does_not_keep_it(
    watch: wake.Watch, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(waiting, "KEEPS_S", 0.3)
    watch.tell([str(uuid4())])
    assert kept_when_rung(watch, 0.8) == [False, False]


def test_one_that_was_cut_while_it_was_kept_is_replaced(
    watch: wake.Watch, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(waiting, "KEEPS_S", 20.0)
    step = uuid4()
    connection.ensure_connection()
    backend = storage.the_row("SELECT pg_backend_pid() AS pid").pid

    def cut_and_ring() -> None:
        # This thread's own connection.
        storage.execute("SELECT pg_terminate_backend(%s, 5000)", [backend])
        connection.close()
        watch.tell([str(step)])

    ringer = threading.Thread(target=cut_and_ring)
    ringer.start()

    def look() -> str:
        return str(storage.the_row("SELECT 'found' AS word").word)

    found = waiting.for_a_new_step(watch, look, 30, step=step)
    ringer.join()
    assert found == "found"


@pytest.mark.usefixtures("soon")
def test_with_others_in_the_room_it_is_given_back_at_once(
    watch: wake.Watch, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(waiting, "KEEPS_S", 20.0)
    with waiting.seat(WAITS, uuid4()):
        assert kept_when_rung(watch, 0.1) == [False, False]


def test_who_waits_for_long_holds_none(watch: wake.Watch) -> None:
    connection.ensure_connection()
    assert waiting.for_a_new_step(watch, lambda: None, 0.3, step=uuid4()) is None
    assert connection.connection is None


def test_a_seat_that_is_left_is_free_again(settings: Any, saga: UUID) -> None:
    settings.SAGA_WAITERS = 2
    waiting._room.cache_clear()
    try:
        for _ in range(3):
            with ExitStack() as seats:
                got = [seats.enter_context(waiting.seat(WAITS, saga)) for _ in range(3)]
                assert [watch is not None for watch in got] == [True, True, False]
        assert waiting._room().taken == 0
    finally:
        waiting._room.cache_clear()
