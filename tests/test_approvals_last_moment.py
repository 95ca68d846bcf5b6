"""A yes and the end of its question at the same millisecond: one of them wins, and it is so."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import httpx
import pytest

from approvals.models import Approval
from ledger.models import Attempt, Step
from tests.approvalcast import Case, person
from tests.lastmoment import database_ahead
from tests.shop import AUTH, Shop, assert_verifies, work

pytestmark = pytest.mark.django_db(transaction=True)

ROUNDS = 200
# From one end to the next, at least: an answer, a sweep and a refund have their time before it.
# Twice what preparing a round took is enough on a machine that does other work as well.
APART_S = 0.025
PREPARED_TIMES = 2
LONGEST_S = 120.0
# Aimed badly, one side would win them all, or by so much that nothing had been a race.
EACH_WINS_AT_LEAST = 5
CLOSE_S = 0.005
CLOSE_AT_LEAST = 5
# Where other work has the machine, both actors come late to most ends; then all of it once more,
# with twice the time in between.
SERIES = 3
# One of these, once: the step was let go, or will not run.
ENDS = frozenset({"approval.approved", "approval.expired", "approval.rejected", "step.rejected"})
YES, OVER = ["approval.approved"], ["approval.expired", "step.rejected"]


@dataclass
class Round:
    """One question about one refund."""

    charge: str
    case: Case

    def ends(self) -> list[str]:
        return [kind for kind in self.case.kinds("") if kind in ENDS]


def off_s(request: Approval) -> float:
    """Seconds from its end to when it was decided, or written off."""
    moment = request.decided_at or request.ended_at
    assert moment is not None
    return abs((moment - request.expires_at).total_seconds())


def waiting_refunds(shop: Shop) -> list[Round]:
    found = []
    with httpx.Client(base_url=shop.url, headers={"Authorization": AUTH}) as target:
        for _ in range(ROUNDS):
            paid = {"amount": "100", "currency": "eur", "source": "pm_card_visa"}
            charge = target.post("/v1/charges", data=paid).raise_for_status().json()["id"]
            saga = shop.open()
            args = {"charge": charge, "amount": 100}
            step = shop.propose(saga, "refund", "payments.refund", args=args).step
            found.append(Round(charge, Case(shop.bearer, saga, step)))
    return found


def end_one_after_the_other(
    rounds: Sequence[Round], within_s: float, apart_s: float
) -> list[Approval]:
    """Ask all of them anew within this time; then each ends a little after the one before.

    Where other work had the machine meanwhile, once more and with more time.
    """
    ahead = database_ahead()
    first = time.time() + ahead + within_s
    for number, one in enumerate(rounds):
        one.case.ask_again(seconds=first + number * apart_s - time.time() - ahead)
    asked = list(Approval.objects.filter(state="pending").order_by("expires_at"))
    in_order = [one.step_id for one in asked] == [one.case.step for one in rounds]
    if time.time() + ahead >= first or not in_order:
        assert within_s < LONGEST_S, "it took too long to ask them all, or one of them"
        return end_one_after_the_other(rounds, 2 * within_s, apart_s)
    return asked


@contextmanager
def actor(env: dict[str, str], *words: str) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-m", "tests.lastmoment", *words]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, env=env, stdin=pipe, stdout=pipe, text=True) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
            yield process
        finally:
            process.kill()


def hand_out(asked: Sequence[Approval], process: subprocess.Popen[str]) -> None:
    assert process.stdin is not None
    for one in asked:
        line = [str(one.pk), one.args_digest, one.expires_at.timestamp()]
        process.stdin.write(json.dumps(line) + "\n")
    process.stdin.close()


def told(process: subprocess.Popen[str]) -> dict[str, Any]:
    """What came of each request."""
    assert process.stdout is not None
    return dict(json.loads(line) for line in process.stdout.read().splitlines())


def refunded(shop: Shop) -> Counter[str]:
    """How many refunds of each charge there are, as the target lists them."""
    return Counter(one["charge"] for one in shop.get("/v1/refunds?limit=100000")["data"])


def assert_one_end(one: Round, request: Approval, answer: str, refunds: int) -> None:
    runs = Attempt.objects.filter(step_id=one.case.step).count()
    if request.state == "approved":
        assert (answer, one.ends(), runs, refunds) == ("approved", YES, 1, 1)
        assert request.decided_at is not None
        assert request.decided_at < request.expires_at
        return
    assert (request.state, answer) == ("expired", "ApprovalExpired")
    assert (one.ends(), runs, refunds) == (OVER, 0, 0)
    assert not request.decisions.exists()


@dataclass
class Score:
    """Who won, and how close it was."""

    asked: Sequence[Approval]
    swept: int

    def __post_init__(self) -> None:
        self.won = sum(request.state == "approved" for request in self.asked)
        self.off = sorted(off_s(request) for request in self.asked)
        self.close = sum(one <= CLOSE_S for one in self.off)

    def __str__(self) -> str:
        return (
            f"{self.won} times the yes, {ROUNDS - self.won} times the end ({self.swept} written by "
            f"the sweeper); {self.close} within {CLOSE_S * 1000:.0f} ms of the end, half within "
            f"{self.off[ROUNDS // 2]:.4f} s"
        )

    @property
    def well_aimed(self) -> bool:
        """Both sides won, and many a time it was close."""
        each_won = min(self.won, ROUNDS - self.won) >= EACH_WINS_AT_LEAST
        return each_won and self.close >= CLOSE_AT_LEAST


def race(shop: Shop, console_env: dict[str, str], slack: int) -> Score:
    """Two hundred questions end one after the other, each with a yes at its last moment."""
    ana, began = person(f"ana-{slack}", "approvers"), time.monotonic()
    rounds = waiting_refunds(shop)
    prepared_s = time.monotonic() - began
    apart_s = slack * max(APART_S, PREPARED_TIMES * prepared_s / ROUNDS)
    with (
        actor(console_env, "approve", f"{ana.user_id}", ana.username) as approver,
        actor(console_env, "sweep") as sweeper,
    ):
        asked = end_one_after_the_other(rounds, 1.0 + prepared_s, apart_s)
        hand_out(asked, approver)
        hand_out(asked, sweeper)
        work(lambda: all(one.poll() is not None for one in (approver, sweeper)), within_s=240)
        said, swept = told(approver), sum(told(sweeper).values())
    left = Step.objects.exclude(state__in=("committed", "rejected"))
    work(lambda: not left.exists(), got_to=lambda: list(left.values("state", "held_why", "error")))
    refunds = refunded(shop)
    for one, request in zip(rounds, asked, strict=True):
        request.refresh_from_db()
        assert_one_end(one, request, said[str(request.pk)], refunds[one.charge])
    return Score(asked, swept)


def test_a_yes_and_the_end_at_the_same_millisecond_have_one_winner(
    shop: Shop,
    console_env: dict[str, str],
    settings: Any,
    record_testsuite_property: Callable[[str, object], None],
) -> None:
    """Case D8, two hundred times: one process says yes, others sweep, a worker takes what it may.

    One terminal entry each time, and no effect of what has expired; the target itself is asked.
    """
    settings.SAGA_SHIFT_LINGER_S = 0.5
    scores = [race(shop, console_env, 1)]
    while not scores[-1].well_aimed and len(scores) < SERIES:
        scores.append(race(shop, console_env, 2 ** len(scores)))
    assert scores[-1].well_aimed, [str(score) for score in scores]
    record_testsuite_property("a yes against the end", str(scores[-1]))
    assert_verifies()
