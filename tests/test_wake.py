"""The waiting room: nobody sleeps through the bell, and nobody needs it."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable

import pytest
from django.db import connection

from ledger import wake

pytestmark = pytest.mark.django_db(transaction=True)
SAGA, STEP, OTHER = "a" * 8, "b" * 8, "c" * 8


@pytest.fixture
def far_net(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who is not told looks much later: on a busy machine too, being told and looking differ."""
    monkeypatch.setattr(wake, "SAFETY_NET_S", 15.0)


def ring(*keys: str) -> None:
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_notify(%s, %s)", [wake.CHANNEL, " ".join(keys)])


def listening() -> None:
    """Return once this process's hub hears."""
    with wake.watching("nobody"):
        assert wake.hub().listening.wait(10)
    time.sleep(0.1)  # whoever registered before is told to look once; that shall be over


def later(seconds: float, action: Callable[[], None]) -> None:
    """Do it in another thread, which leaves no connection behind."""

    def act() -> None:
        action()
        connection.close()

    threading.Timer(seconds, act).start()


@pytest.mark.parametrize("key", [SAGA, STEP])
def test_a_bell_for_saga_or_step_ends_the_wait(far_net: None, key: str) -> None:
    listening()
    done = threading.Event()

    def finish() -> None:
        done.set()
        ring(SAGA, STEP)

    later(0.2, finish)
    began = time.monotonic()
    assert wake.wait_until([key], lambda: done.is_set() or None, 20)
    assert time.monotonic() - began < wake.SAFETY_NET_S


def test_what_is_done_already_is_not_waited_for() -> None:
    began = time.monotonic()
    assert wake.wait_until([SAGA], lambda: "done", 20) == "done"
    assert time.monotonic() - began < 1


def test_a_bell_before_the_sleep_is_not_lost(far_net: None) -> None:
    listening()
    with wake.watching(SAGA) as watch:
        ring(SAGA, STEP)
        time.sleep(0.3)
        began = time.monotonic()
        assert watch.wait(lambda: True, 20, about=STEP, look_first=False)
        assert time.monotonic() - began < wake.SAFETY_NET_S


def test_without_a_bell_the_safety_net_looks() -> None:
    listening()
    done = threading.Event()
    later(0.2, done.set)
    began = time.monotonic()
    assert wake.wait_until([SAGA], lambda: done.is_set() or None, 20)
    assert time.monotonic() - began < 3 * wake.SAFETY_NET_S


def test_a_bell_for_another_step_of_the_saga_causes_no_look() -> None:
    listening()
    looks: list[float] = []

    def ring_for_another() -> None:
        for _ in range(20):
            ring(SAGA, OTHER)

    began = time.monotonic()
    with wake.watching(SAGA) as watch:
        later(0.1, ring_for_another)
        watch.wait(lambda: looks.append(time.monotonic()), 0.8, about=STEP, look_first=False)
    assert [look - began > 0.7 for look in looks] == [True]  # the last one, as the time ends


def test_a_wait_ends_when_its_time_is_over() -> None:
    began = time.monotonic()
    assert wake.wait_until([SAGA], lambda: None, 0.5) is None
    assert 0.4 < time.monotonic() - began < 2


def test_the_hub_hears_again_after_its_connection_was_cut() -> None:
    listening()
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
            "WHERE query LIKE 'LISTEN%' AND datname = current_database()"
        )
    deadline = time.monotonic() + 10
    heard = False
    while not heard and time.monotonic() < deadline:
        with wake.watching(SAGA) as watch:
            ring(SAGA, STEP)
            heard = watch.wait(lambda: True, 0.5, about=STEP, look_first=False) is not None
    assert heard


def test_what_was_said_while_nobody_listened_is_found_by_a_look(far_net: None) -> None:
    """Case E14: the bell was lost with the connection. What happened was written down before it
    rang, and who listens again looks at all of it."""
    listening()
    done = threading.Event()
    looks: list[bool] = []

    def happen_unheard() -> None:
        done.set()
        with connection.cursor() as cursor:
            cursor.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                "WHERE query LIKE 'LISTEN%' AND datname = current_database()"
            )

    def look() -> bool | None:
        looks.append(done.is_set())
        return done.is_set() or None

    began = time.monotonic()
    later(0.2, happen_unheard)
    assert wake.wait_until([SAGA], look, 20)
    assert time.monotonic() - began < wake.SAFETY_NET_S  # by the new listener, not by the poll
    assert looks == [False, True]


def test_a_watch_leaves_nothing_behind() -> None:
    for _ in range(3):
        wake.wait_until([SAGA, STEP], lambda: True, 1)
    assert wake.hub()._watches == {}


def test_a_fork_gets_a_hub_of_its_own() -> None:
    listening()
    parents = wake.hub()
    pid = os.fork()
    if pid == 0:  # pragma: no cover - the child's world ends here
        os._exit(0 if wake.hub() is not parents else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert wake.hub() is parents
