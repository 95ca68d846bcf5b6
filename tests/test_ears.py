"""A worker hears NOTIFY on the connection that it works on."""

from __future__ import annotations

import select
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from typing import Any
from uuid import uuid4

import psycopg
import pytest
from django.db import connection, transaction

from ledger import shift, storage
from ledger.listening import LOST, EarsAtWork, listen
from ledger.services import shifts
from ledger.shift import ShiftLoop
from tests.shop import Shop, customer

pytestmark = pytest.mark.django_db(transaction=True)

CHANNEL = "somewhere"


@pytest.fixture
def ears() -> Iterator[EarsAtWork]:
    found = EarsAtWork(CHANNEL)
    yield found
    found.close()


@pytest.fixture
def other() -> Iterator[psycopg.Connection]:
    with closing(listen("nothing")) as session:
        yield session


def can_be_read(ears: EarsAtWork, within_s: float = 5.0) -> bool:
    return bool(select.select([ears.fileno()], [], [], within_s)[0])


def channels() -> list[str]:
    return [row[0] for row in storage.rows("SELECT pg_listening_channels()")]


def test_it_listens_once_for_each_connection(ears: EarsAtWork) -> None:
    assert ears.begin()
    assert not ears.begin()
    assert channels() == [CHANNEL]


def test_what_is_said_while_it_waits_wakes_it(ears: EarsAtWork, other) -> None:
    ears.begin()
    assert not ears.rang()
    other.execute(f"NOTIFY {CHANNEL}")
    assert can_be_read(ears)
    assert ears.rang(reads=True)
    assert not ears.rang()


@pytest.mark.parametrize("by_django", [False, True], ids=["by the channel", "by a cursor"])
def test_what_is_said_while_it_works_has_come_with_the_answers(
    ears: EarsAtWork, other, by_django: bool
) -> None:
    ears.begin()
    with transaction.atomic():
        storage.rows("SELECT 1")
        other.execute(f"NOTIFY {CHANNEL}")
    # Postgres tells between transactions: with the COMMIT, or with what is asked next.
    if by_django:
        with connection.cursor() as cursor:
            cursor.execute("SELECT 1")
    else:
        storage.rows("SELECT 1")
    assert ears.rang() or (can_be_read(ears) and ears.rang(reads=True))
    assert not ears.rang()


def test_what_its_own_work_says_counts_too(ears: EarsAtWork) -> None:
    ears.begin()
    storage.execute(f"NOTIFY {CHANNEL}")
    assert ears.rang() or (can_be_read(ears) and ears.rang(reads=True))


def test_at_its_end_the_connection_hears_nothing_more(ears: EarsAtWork, other) -> None:
    ears.begin()
    mine = connection.connection
    ears.close()
    ears.close()
    assert channels() == []
    other.execute(f"NOTIFY {CHANNEL}")
    storage.rows("SELECT 1")
    assert mine is connection.connection
    assert mine.pgconn.notifies() is None
    assert ears.begin()


def test_a_connection_that_is_lost_is_told_and_the_next_one_listens(
    ears: EarsAtWork, other
) -> None:
    ears.begin()
    pid = connection.connection.info.backend_pid
    other.execute("SELECT pg_terminate_backend(%s, 5000)", [pid])

    def listens_on() -> None:
        while can_be_read(ears):  # its last words first
            ears.rang(reads=True)

    with pytest.raises(LOST):
        listens_on()
    ears.close()
    connection.close()
    assert ears.begin()
    assert channels() == [CHANNEL]


def test_a_shift_leaves_nobody_listening(settings) -> None:
    settings.SAGA_SHIFT_LINGER_S = 0.3
    ShiftLoop(uuid4()).run()
    assert channels() == []


def test_nor_one_that_a_fault_ended(settings, monkeypatch) -> None:
    beats: list[int] = []

    def faulty(_loop: ShiftLoop) -> None:
        beats.append(1)
        if len(beats) > 2:
            raise ZeroDivisionError

    monkeypatch.setattr(ShiftLoop, "_beat", faulty)
    with pytest.raises(ZeroDivisionError):
        ShiftLoop(uuid4()).run()
    assert channels() == []


def test_a_shift_that_is_told_to_stop_waits_for_what_is_out_asleep(shop: Shop, monkeypatch) -> None:
    """It takes nothing new, so that there may be something to take must not keep it awake."""
    turns: list[float] = []
    called = threading.Event()
    turn, call = ShiftLoop._turn, ShiftLoop._call

    def counted(loop: ShiftLoop, pool: Any) -> None:
        turns.append(time.monotonic())
        turn(loop, pool)

    def slow(loop: ShiftLoop, *told: Any) -> None:
        called.set()
        shift.stopping.set()
        time.sleep(1.5)
        call(loop, *told)

    monkeypatch.setattr(shift, "stopping", threading.Event())
    monkeypatch.setattr(ShiftLoop, "_turn", counted)
    monkeypatch.setattr(ShiftLoop, "_call", slow)
    shop.open(customer("ada"))
    ShiftLoop(shifts.ring_row()).run()
    assert called.is_set()
    assert len(turns) < 30
