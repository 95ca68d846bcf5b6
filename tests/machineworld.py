"""What the state machine's rules share: a console, its sagas, and what was asked of it."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any, ClassVar
from uuid import UUID

from django.db import connection
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize

from approvals.models import Approval
from approvals.states import ApprovalState
from ledger.bearer import Bearer
from ledger.models import Attempt, OutboxMessage, Step
from ledger.outcomes import Outcome
from ledger.services import freezing
from ledger.services.claiming import Assignment
from ledger.services.opening import open_saga
from ledger.services.proposals import Opening, Proposal
from tests.approvalcast import agent, person
from tests.book import Book

TOOLS = ("plain", "dedupes", "once", "blind", "grave", "letter", "refused")
# Which of several: an index into whatever there is, so that a shrunk example stays readable.
PICK = st.integers(0, 5)
SEVERAL = st.lists(st.sampled_from(TOOLS), min_size=1, max_size=3)
MOST_SAGAS, MOST_STEPS = 7, 24


@dataclass(frozen=True)
class Asked:
    """A step that was accepted, as its agent remembers it."""

    saga: UUID
    proposal: Proposal
    step: UUID


@dataclass(frozen=True)
class Lost:
    """An attempt whose worker does not answer; `outcome` is what its call came to."""

    shift: UUID
    assignment: Assignment
    outcome: Outcome


class World(RuleBasedStateMachine):
    """A console, two agents and two people who may approve."""

    book: ClassVar[Book]

    # What has happened in all examples, so that a test can say whether they were worth it.
    seen: ClassVar[Counter[str]] = Counter()

    @initialize(first=SEVERAL, second=SEVERAL)
    def start(self, first: list[str], second: list[str]) -> None:
        """An empty console: what an example did to another one must not be seen in this one."""
        with connection.cursor() as cursor:
            cursor.execute("TRUNCATE ledger_agent, ledger_freeze, auth_user CASCADE")
        self.book.clear()
        self.agents = [agent("ada"), agent("bob")]
        self.approvers = [person("ann", "approvers"), person("abe", "approvers")]
        self.owner: dict[UUID, Bearer] = {}
        self.asked: list[Asked] = []
        self.lost: list[Lost] = []
        self.words = 0
        self.checked: dict[UUID, tuple[int, int]] = {}
        self._look()
        self._open(self.agents[0], first)
        self._open(self.agents[1], second)

    def _look(self) -> None:
        """What the rules need to know before they are tried."""
        states = set(Step.objects.values_list("state", flat=True))
        self.in_doubt = bool(states & {"unknown", "stuck", "compensating"})
        self.requested = Approval.objects.exists()
        self.waiting = Approval.objects.filter(state=ApprovalState.PENDING).exists()
        self.frozen = freezing.active_freezes().exists()
        owed = OutboxMessage.objects.filter(taken_at__isnull=True)
        self.due = owed.exists()
        self.out = Attempt.objects.filter(state="started").exists() or (
            OutboxMessage.objects.filter(lease_until__isnull=False).exists()
        )

    @property
    def sagas(self) -> list[UUID]:
        return list(self.owner)

    def of(self, found: list[Any], pick: int) -> Any:
        return found[pick % len(found)]

    def word(self) -> str:
        self.words += 1
        return f"w{self.words}"

    def _open(self, bearer: Bearer, tools: list[str]) -> None:
        steps = tuple(Proposal(self.word(), f"book.{t}", {"what": self.word()}) for t in tools)
        opening = Opening(task_id=self.word(), name="Machine", steps=steps, retry_budget=6)
        opened = open_saga(opening, bearer=bearer)
        assert opened.created
        self.owner[opened.saga] = bearer
        for proposal, answer in zip(steps, opened.answers, strict=True):
            self.asked.append(Asked(opened.saga, proposal, answer.step))
        again = open_saga(opening, bearer=bearer)
        assert (again.saga, again.created) == (opened.saga, False)
