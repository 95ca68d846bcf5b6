"""The cast of the gate's tests: a tool that waits for people, an agent, and people."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest
from django.contrib.auth import get_user_model
from django.contrib.auth.models import Group, User
from django.db import connection

from approvals.models import Approval
from approvals.services import deciding, requesting
from ledger import storage
from ledger.bearer import Bearer
from ledger.gate import Held, Verdict
from ledger.models import Agent, Entry, Step
from ledger.outcomes import Failed
from ledger.services import claiming, recording
from ledger.services.asking import ask
from ledger.services.assignments import Assignment
from ledger.services.opening import open_saga
from ledger.services.proposals import AlternativeProposal, Opening, Proposal
from ledger.services.proposing import propose
from ledger.services.unit import Unit
from ledger.states import Direction
from tests.registered import registered

TOOL = """
[tools."{name}"]
version = "1"
tier = "{tier}"
blast_radius = "{blast}"
[tools."{name}".args]
type = "object"
properties = {{ id = {{ type = "string" }}, amount = {{ type = "number" }} }}
[tools."{name}".execute]
method = "POST"
url = "http://127.0.0.1:1/do"
"""
UNDO = '[tools."{name}".{verb}]\nmethod = "POST"\nurl = "http://127.0.0.1:1/undo"\n'


@pytest.fixture
def tools(settings: Any, tmp_path: Path) -> Iterator[None]:
    """`note.add` (harmless), `money.refund` (a pivot that is held), `mail.send` (held, corrects).

    Nothing listens at their address: these tests decide and claim, and never call.
    """
    text = (
        TOOL.format(name="note.add", tier="compensatable", blast="low")
        + UNDO.format(name="note.add", verb="compensate")
        + TOOL.format(name="money.refund", tier="pivot", blast="high")
        + TOOL.format(name="mail.send", tier="non_compensatable", blast="high")
        + UNDO.format(name="mail.send", verb="correct")
    )
    with registered(settings, tmp_path, text):
        yield


def person(name: str, *groups: str, **more: Any) -> Bearer:
    """Somebody with an account in these groups."""
    user: User = get_user_model().objects.create_user(name, **more)
    user.groups.set([Group.objects.get_or_create(name=group)[0] for group in groups])
    return Bearer(user_id=user.pk, username=name)


def agent(name: str = "refunder", owner: Bearer | None = None) -> Bearer:
    row = Agent.objects.create(name=name, owner_id=owner.user_id if owner else None)
    return Bearer(agent_id=row.pk, agent_name=name)


@dataclass
class Case:
    """A saga with one step that waits for people."""

    agent: Bearer
    saga: UUID
    step: UUID

    @property
    def request(self) -> Approval:
        """The newest request about the step, as it is now."""
        return Approval.objects.filter(step_id=self.step).latest("id")

    @property
    def row(self) -> Step:
        return Step.objects.get(pk=self.step)

    @property
    def digest(self) -> str:
        return self.request.args_digest

    def kinds(self, prefix: str = "approval.") -> list[str]:
        """The kinds of the saga's entries that begin so, in order."""
        found = Entry.objects.filter(saga_id=self.saga, kind__startswith=prefix).order_by("seq")
        return [entry.kind for entry in found]

    def propose(self, step_id: str, tool: str = "money.refund", **args: Any) -> UUID:
        return propose(self.saga, Proposal(step_id, tool, args), bearer=self.agent).step

    def ask_again(
        self,
        *,
        seconds: float = 60.0,
        needs: Mapping[str, int] | None = None,
        policy: str = "",
        **bound: Any,
    ) -> UUID:
        """A newer request about the same step: on other terms, or bound to something else."""
        now = self.request
        need = [{"group": g, "count": n} for g, n in (needs or {"approvers": 1}).items()]
        terms = {"need": need, "expires_s": seconds}
        verdict = Verdict("ask", now.rule, policy or now.policy_digest, terms)
        if not bound:
            ask_as_the_ledger_does(now, verdict)
            return self.request.pk
        held = Held(
            step=now.step_id,
            saga=now.saga_id,
            direction=now.direction,
            args=json.loads(now.args_text),
            args_digest=now.args_digest,
            tool=now.tool,
            tool_version=now.tool_version,
            tool_digest=now.tool_digest,
            idempotency_key=now.idempotency_key,
            why="asked again",
        )
        return requesting.ask(replace(held, **bound), verdict)


@storage.transition
def ask_as_the_ledger_does(request: Approval, verdict: Verdict) -> None:
    """With its entry, so that whoever reads the ledger knows of the question."""
    unit = Unit("a test")
    unit.lock_with_steps([request.step_id])
    step = unit.steps[request.step_id]
    saga, direction = unit.sagas[step.saga_id], Direction(request.direction)
    ask(unit, saga, step, direction, verdict, why="asked again")
    unit.flush()


def claim() -> list[Assignment]:
    """What a worker's shift would start now."""
    return claiming.claim(uuid4(), 16)


def in_threads(works: Sequence[Callable[[], Any]]) -> list[Any]:
    """Run these side by side from one starting line: results, or the exceptions raised."""
    line = threading.Barrier(len(works))
    found: list[Any] = [None] * len(works)

    def run(index: int, work: Callable[[], Any]) -> None:
        try:
            connection.ensure_connection()
            line.wait(30)
            found[index] = work()
        except Exception as error:
            found[index] = error
        finally:
            connection.close()

    threads = [threading.Thread(target=run, args=pair) for pair in enumerate(works)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    return found


def waiting_case(
    *, owner: Bearer | None = None, metadata: Mapping[str, Any] | None = None, **args: Any
) -> Case:
    """A refund that waits for an approver. Needs the fixture `tools`."""
    caller = agent(f"agent-{uuid4().hex[:8]}", owner)
    saga = open_saga(
        Opening(task_id="task", name="Cancel order 7", metadata=metadata or {}), bearer=caller
    ).saga
    case = Case(caller, saga, saga)
    case.step = case.propose("refund-1", **(args or {"id": "p1", "amount": 100}))
    return case


def waiting_alternative(approver: Bearer) -> Case:
    """A refund that failed under a yes; its other choice, `{"id": "p1", "amount": 7}`, waits."""
    caller = agent(f"agent-{uuid4().hex[:8]}")
    saga = open_saga(Opening(task_id="task", name="Cancel order 7"), bearer=caller).saga
    other = AlternativeProposal("money.refund", {"id": "p1", "amount": 7})
    proposal = Proposal("refund-1", "money.refund", {"id": "p9"}, alternatives=(other,))
    case = Case(caller, saga, propose(saga, proposal, bearer=caller).step)
    deciding.approve(approver, case.request.pk, args_digest=case.digest)
    (first,) = claim()
    recording.record(uuid4(), [recording.Finished(first, Failed("no", retryable=False))])
    assert case.row.alternative == 1
    return case


FORGEABLE = ("ledger_step", "ledger_saga", "approvals_approval", "approvals_decision")


@contextmanager
def behind_the_ledger() -> Iterator[Any]:
    """As the owner of the tables may: while the triggers sleep, but for those of TRUNCATE."""
    find = (
        "SELECT format('ALTER TABLE %%s %%%%s TRIGGER %%I', tgrelid::regclass, tgname) "
        "FROM pg_trigger WHERE tgrelid = ANY(%s::regclass[]) AND NOT tgisinternal "
        "AND tgname NOT LIKE '%%\\_no\\_truncate'"
    )
    with connection.cursor() as cursor:
        cursor.execute(find, [list(FORGEABLE)])
        switches = [row[0] for row in cursor.fetchall()]
        for switch in switches:
            cursor.execute(switch % "DISABLE")
        try:
            yield cursor
        finally:
            for switch in switches:
                cursor.execute(switch % "ENABLE")
