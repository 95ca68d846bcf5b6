"""Judged by others: after every test of approvals, agentack looks at the traces of its sagas.

A saga that ended must pass; one that a test left running may only be incomplete. And the judge
is judged: copies in which something else ran than was allowed must fail.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterator
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

import pytest
from agentack import cli

PASS, FAIL, INCOMPLETE = 0, 1, 3
Events = list[dict[str, Any]]
# The modules whose tests put questions to people.
JUDGED = (
    *("test_approvals_", "test_policy_limits", "test_api_trace", "test_surfaces"),
    *("test_pages_deciding", "test_pages_editing", "test_pages_policy", "test_pages_presence"),
)


def check(file: Path, found: Events) -> tuple[int, str]:
    """`agentack check` on these events: its exit code and what it printed."""
    file.write_text("\n".join(map(json.dumps, found)), "utf-8")
    said = io.StringIO()
    with redirect_stdout(said), redirect_stderr(said):
        code = cli.main(["check", str(file)])
    return code, said.getvalue()


def allowed(found: Events) -> int | None:
    """Where something ran under a yes, if anything did."""
    return next(
        (
            index
            for index, event in enumerate(found)
            if event["type"] == "action_executed" and event.get("approval_id")
        ),
        None,
    )


def other_args(found: Events, ran: int) -> None:
    found[ran]["action"]["parameters"] = {"amount": "another"}


def twice(found: Events, ran: int) -> None:
    found.insert(ran, json.loads(json.dumps(found[ran])))


def under_a_no(found: Events, ran: int) -> None:
    for event in found:
        if event["type"] == "approval_decision":
            event["decision"] = "deny"


TAMPERINGS: tuple[Callable[[Events, int], None], ...] = (other_args, twice, under_a_no)


def judge(folder: Path) -> int:
    """Judge every saga that asked anybody; how many. Raises AssertionError with what was said."""
    from ledger.models import Entry, Saga
    from ledger.queries import trace
    from ledger.states import SAGA_ENDED

    asked = Entry.objects.filter(kind="approval.requested").values("saga_id")
    sagas = list(Saga.objects.filter(pk__in=asked))
    for saga in sagas:
        found = [json.loads(line) for line in trace.lines(saga.pk)]
        fine = {PASS} if saga.state in SAGA_ENDED else {PASS, INCOMPLETE}
        code, said = check(folder / f"{saga.pk}.jsonl", found)
        assert code in fine, f"saga {saga.pk} ({saga.state}): {said}"
        if (ran := allowed(found)) is None:
            continue
        for tamper in TAMPERINGS:
            copy = json.loads(json.dumps(found))
            tamper(copy, ran)
            code, said = check(folder / "tampered.jsonl", copy)
            assert code == FAIL, f"{tamper.__name__} was not found: {said}"
    return len(sagas)


def is_judged(request: pytest.FixtureRequest) -> bool:
    module = request.module.__name__.rpartition(".")[2]
    # What is written by hand, behind the services, is not the product's doing.
    by_hand = request.node.get_closest_marker("by_hand")
    uses = request.node.get_closest_marker("django_db") or "stage" in request.fixturenames
    return bool(uses) and by_hand is None and module.startswith(JUDGED)


@pytest.fixture(autouse=True)
def judged_by_others(request: pytest.FixtureRequest, tmp_path_factory: Any) -> Iterator[None]:
    """After the test, and before its rows are gone."""
    if not is_judged(request):
        yield
        return
    request.getfixturevalue("db")
    yield
    judge(tmp_path_factory.mktemp("traces"))
