"""After a soak: what was promised, what is recorded, and what happened at the targets."""

from __future__ import annotations

import os
from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any
from uuid import UUID

import django

from saga_console.home import Home
from tests.book import Book
from tests.soakload import World

# A step is on its way in these; in every other state it has ended, or waits for a person.
BUSY = frozenset({"queued", "executing", "unknown", "compensating"})


def open_database(home: Home) -> None:
    """Make this process one of the console's, to read what it has stored."""
    os.environ["DATABASE_URL"] = home.database_url
    os.environ["REDIS_URL"] = home.redis_url
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "saga_console.settings")
    django.setup()


@dataclass
class Judge:
    """Reads Django's database; `target` is the book as it was at the end."""

    target: dict[str, Any]
    world: World
    blows: Sequence[tuple[float, str]]
    hidden: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.book = Book()
        for line in self.target["lines"]:
            self.book.take(line)

    def wrong(self) -> Iterator[str]:
        yield from self._lost()
        yield from self._doubled()
        yield from self._invariants()

    @cached_property
    def steps(self) -> dict[tuple[str, str], Any]:
        from ledger.models import Step

        return {(str(s.saga_id), s.step_id): s for s in Step.objects.select_related("saga")}

    @cached_property
    def lost(self) -> list[str]:
        return [
            f"step {step_id} of saga {saga} was promised and is not there"
            for saga, step_id in self.world.promised.keys() - self.steps.keys()
        ]

    def _lost(self) -> Iterator[str]:
        """Promised and not there; effects that belong to no step."""
        yield from self.lost
        known = {step.idempotency_key for step in self.steps.values()}
        for line in self.target["lines"]:
            # A revised step had another key, and never ran under it.
            if line["key"].rpartition(":")[2] not in known:
                yield f"the target has {line}, which no step asked for"

    @cached_property
    def doubled(self) -> dict[str, list[str]]:
        """By kind of target: the keys that had more than one effect."""
        times = Counter((x["kind"], x["noun"], x["key"]) for x in self.target["lines"])
        found: dict[str, list[str]] = {"dedupes": [], "plain": []}
        for (kind, noun, key), count in times.items():
            if count > 1:
                found[kind].append(f"{count} {noun} under {key} at the target that is {kind}")
        return found

    def _doubled(self) -> Iterator[str]:
        for lines in self.doubled.values():
            yield from lines
        undone = {line["of"] for line in self.target["lines"] if line["noun"] == "undos"}
        live = Counter(
            line["what"]
            for line in self.target["lines"]
            if line["noun"] == "effects" and line["id"] not in undone
        )
        yield from (f"{count} live effects of {what}" for what, count in live.items() if count > 1)

    def _invariants(self) -> Iterator[str]:
        from django.contrib.auth import get_user_model

        from approvals import rights
        from ledger.bearer import Bearer
        from ledger.models import Saga
        from tests.invariants import faults_of

        ann: Any = get_user_model().objects.get(username="ann")
        approver = rights.who(Bearer(user_id=ann.pk, username="ann"))
        for saga in Saga.objects.order_by("id").values_list("pk", flat=True):
            for fault in faults_of(saga, self.book, approver):
                if "nobody will ever look" in fault or "does not find it" in fault:
                    self.hidden.append(f"saga {saga}: {fault}")
                yield f"saga {saga}: {fault}"

    # -- figures --------------------------------------------------------------------------

    @cached_property
    def recoveries(self) -> dict[str, list[float]]:
        """By kind of blow: for each step that was on its way when it fell, the seconds until
        that step came to rest, whatever else was struck meanwhile."""
        from ledger.models import Entry

        at = [when for when, _ in self.blows]
        found: dict[str, list[float]] = defaultdict(list)
        busy_since: dict[tuple[UUID, str], float] = {}
        told = Entry.objects.exclude(state="").exclude(step_id="").order_by("saga_id", "seq")
        for saga, step_id, state, moment in told.values_list("saga_id", "step_id", "state", "at"):
            when = moment.timestamp()
            if state in BUSY:
                busy_since.setdefault((saga, step_id), when)
            elif since := busy_since.pop((saga, step_id), 0.0):
                for n in range(bisect_right(at, since), bisect_right(at, when)):
                    found[self.blows[n][1]].append(when - at[n])
        return found

    def table(self, seconds: float, seed: int) -> Iterator[str]:
        from ledger.models import Attempt, Entry, Saga

        states = Counter(step.state for step in self.steps.values())
        left = Counter(
            Saga.objects.exclude(state__in=["completed", "compensated"]).values_list(
                "state", flat=True
            )
        )
        lines = Counter((x["kind"], x["noun"]) for x in self.target["lines"])
        kinds = Counter(
            Entry.objects.filter(
                kind__in=[
                    "attempt.expired",
                    "attempt.late",
                    "step.looked",
                    "step.sent_again",
                    "step.replayed",
                    "step.deduplicated",
                    "operator.resolved",
                ]
            ).values_list("kind", flat=True)
        )
        yield f"seed {seed}, {seconds:.0f} s with the wait for quiet"
        yield from _rows(
            [
                ("sagas", len(self.world.sagas)),
                ("steps promised", len(self.world.promised)),
                ("steps recorded", len(self.steps)),
                *((f"  {state}", count) for state, count in sorted(states.items())),
                ("attempts", Attempt.objects.count()),
                *((f"  {kind}", count) for kind, count in sorted(kinds.items())),
                ("sagas not ended", sum(left.values())),
                *((f"  {state}", count) for state, count in sorted(left.items())),
                *(
                    (f"{noun} at the target that {_verb(kind)}", n)
                    for (kind, noun), n in sorted(lines.items())
                ),
                ("faults of the targets", sum(self.target["faults"].values())),
                *((f"  {name}", n) for name, n in sorted(self.target["faults"].items())),
                *((f"agents: {name}", count) for name, count in sorted(self.world.counts.items())),
                ("lost", len(self.lost)),
                ("doubled at the target that dedupes", len(self.doubled["dedupes"])),
                ("doubled at the target that does not", len(self.doubled["plain"])),
                ("not ended, and on no page", len(self.hidden)),
            ]
        )
        yield ""
        yield f"{'blow':<34} {'times':>6} {'steps':>6} {'p50 s':>7} {'p99 s':>7} {'max s':>7}"
        times = Counter(name for _, name in self.blows)
        for name in sorted(times):
            yield _recovery(name, times[name], self.recoveries.get(name, []))
        everything = [s for found in self.recoveries.values() for s in found]
        yield _recovery("all", len(self.blows), everything)


def _verb(kind: str) -> str:
    return {"dedupes": "dedupes", "plain": "does not dedupe"}[kind]


def _rows(rows: Sequence[tuple[str, int]]) -> Iterator[str]:
    for name, count in rows:
        yield f"{name:<44} {count:>8}"


def _recovery(name: str, times: int, seconds: Sequence[float]) -> str:
    found = sorted(seconds)
    at = [found[min(len(found) - 1, int(len(found) * q))] for q in (0.5, 0.99, 1)] if found else []
    shown = "".join(f" {second:7.2f}" for second in at)
    return f"{name:<34} {times:>6} {len(found):>6}{shown}"
