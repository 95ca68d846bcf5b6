"""Threads that come while another is at it: one leads, nobody is forgotten, nobody waits long."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor

import pytest

from ledger.services.gathering import Gathering
from tests.running import eventually


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(64) as threads:
        yield threads


def gathering(most: int = 8, patience_s: float = 30.0) -> Gathering[str]:
    return Gathering(most=most, patience_s=patience_s)


def ready(room: Gathering[str]) -> int:
    return sum(one.is_ready for one in room._waiting)


def come(
    pool: ThreadPoolExecutor, room: Gathering[str], *works: str, keys: str = ""
) -> list[Future[list[str]]]:
    """Threads that come one after the other; each returns what it was to do."""

    def act(work: str, key: str) -> list[str]:
        with room.turn(work, key=key) as led:
            return led

    coming = []
    for work, key in zip(works, keys or works, strict=True):
        before = ready(room)
        coming.append(pool.submit(act, work, key))
        eventually(lambda before=before: ready(room) > before, "it waits")
    return coming


def told(coming: list[Future[list[str]]]) -> list[list[str]]:
    return [future.result(20) for future in coming]


def test_who_comes_first_does_its_own_work_at_once() -> None:
    with gathering().turn("a", key=1) as led:
        assert led == ["a"]


def test_who_comes_meanwhile_is_led_by_the_first_of_them(pool: ThreadPoolExecutor) -> None:
    room = gathering()
    with room.turn("a", key="a") as led:
        coming = come(pool, room, *"bcd")
        assert led == ["a"]
    assert told(coming) == [["b", "c", "d"], [], []]


def test_nobody_goes_on_before_its_work_is_done(pool: ThreadPoolExecutor) -> None:
    room, done = gathering(), threading.Event()

    def lead() -> None:
        with room.turn("b", key="b") as led:
            assert led == ["b", "c"]
            time.sleep(0.3)
            done.set()

    def follow() -> bool:
        with room.turn("c", key="c") as led:
            assert led == []
            return done.is_set()

    with room.turn("a", key="a"):
        leader = pool.submit(lead)
        eventually(lambda: ready(room) == 1, "it waits")
        follower = pool.submit(follow)
        eventually(lambda: ready(room) == 2, "it waits")
    leader.result(20)
    assert follower.result(20)


def test_of_one_key_only_one_is_led_and_at_most_so_many(pool: ThreadPoolExecutor) -> None:
    room = gathering(most=2)
    with room.turn("a", key="0"):
        coming = come(pool, room, *"bcde", keys="1123")
    assert told(coming) == [["b", "d"], ["c", "e"], [], []]


def test_the_lead_goes_on_when_the_work_fails(pool: ThreadPoolExecutor) -> None:
    room = gathering()
    coming = []

    def fail() -> None:
        with room.turn("a", key="a"):
            coming.extend(come(pool, room, *"bc"))
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert told(coming) == [["b", "c"], []]
    with room.turn("d", key="d") as led:
        assert led == ["d"]


def test_who_waits_too_long_leads_and_so_does_who_comes_then(pool: ThreadPoolExecutor) -> None:
    room = gathering(patience_s=0.2)
    with room.turn("held up", key=0):
        began = time.monotonic()
        with room.turn("b", key=1) as led:
            assert led == ["b"]
            assert 0.15 < time.monotonic() - began < 5
        with room.turn("c", key=2) as led:
            assert led == ["c"]
            assert time.monotonic() - began < 5
    with room.turn("d", key=3) as led:
        assert led == ["d"]


def test_who_makes_itself_ready_holds_up_nobody(pool: ThreadPoolExecutor) -> None:
    room, go_on = gathering(), threading.Event()

    def slow() -> list[str]:
        with room.turn("slow", key="slow", ready=lambda: go_on.wait(20)) as led:
            return led

    with room.turn("a", key="a"):
        late = pool.submit(slow)
        eventually(lambda: len(room._waiting) == 1, "it makes itself ready")
        coming = come(pool, room, "b")
    assert told(coming) == [["b"]]
    with room.turn("c", key="c") as led:
        assert led == ["c"]
    go_on.set()
    assert late.result(20) == ["slow"]


def test_who_cannot_be_led_works_at_once_and_does_not_lead(pool: ThreadPoolExecutor) -> None:
    room = gathering()
    with room.turn("a", key="a"):
        coming = come(pool, room, "b")
        with room.turn("c", key="c", ready=lambda: False) as led:
            assert led == ["c"]
        assert not coming[0].done()
    assert told(coming) == [["b"]]


def test_who_fails_to_get_ready_is_waited_for_by_nobody(pool: ThreadPoolExecutor) -> None:
    room = gathering()

    def fail() -> bool:
        raise KeyboardInterrupt

    def interrupted() -> None:
        with room.turn("b", key="b", ready=fail):
            raise AssertionError

    with room.turn("a", key="a"):
        with pytest.raises(KeyboardInterrupt):
            interrupted()
        assert room._waiting == []


def test_who_was_overtaken_leaves_the_lead_to_who_has_it(pool: ThreadPoolExecutor) -> None:
    room = gathering(patience_s=0.2)
    release, second = threading.Event(), threading.Event()

    def overtake() -> list[str]:
        with room.turn("b", key="b") as led:
            second.set()
            release.wait(20)
            return led

    with room.turn("a", key="a"):
        time.sleep(0.3)
        overtaker = pool.submit(overtake)
        assert second.wait(20)
    room._patience_s = 30.0  # of those who come from now on
    coming = come(pool, room, "c")  # waits: somebody leads still
    release.set()
    assert overtaker.result(20) == ["b"]
    assert told(coming) == [["c"]]


@pytest.mark.parametrize("patience_s", [0.0, 0.0005, 30.0])
def test_each_work_is_done_once_however_they_come(
    pool: ThreadPoolExecutor, patience_s: float
) -> None:
    room, done, lock = gathering(most=4, patience_s=patience_s), [], threading.Lock()

    def act(number: int) -> None:
        work = str(number)
        with room.turn(work, key=number % 7) as led:
            time.sleep(0.0002 * (number % 3))
            with lock:
                done.extend(led)
            assert len(led) <= 4
        assert work in done

    each: Callable[[int], Future[None]] = lambda number: pool.submit(act, number)  # noqa: E731
    for future in [each(number) for number in range(2000)]:
        future.result(60)
    assert sorted(done, key=int) == [str(number) for number in range(2000)]
    assert room._waiting == []
