"""Ledgers that releases wrote, read and continued by today's code (tests/golden.py makes them).

In flight they go on or wait visibly, and never break; ended they verify, and answer.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ledger import keys
from ledger.bearer import Bearer
from ledger.errors import SagaError
from ledger.models import (
    Agent,
    Attempt,
    EffectClaim,
    Entry,
    IdempotencyRecord,
    OutboxMessage,
    Saga,
    Step,
    StepTombstone,
    ToolVersion,
)
from ledger.services import tooling
from ledger.services.opening import open_saga
from ledger.services.proposals import AlternativeProposal, Opening, Proposal
from ledger.services.proposing import propose
from ledger.services.restoring import restore_file
from ledger.services.verifying_exports import verify_file
from ledger.states import (
    SAGA_ENDED,
    STEP_FINISHED,
    Direction,
    RecordState,
    SagaState,
    StepState,
)
from ledger.tools.installed import registry
from saga_console.demo.faultproxy import FaultProxy
from tests import golden
from tests.shop import AUTH, assert_verifies, work

ROOT = Path(__file__).parent.parent
RELEASES = sorted(path for path in golden.FOLDER.iterdir() if path.is_dir())
NEWEST = RELEASES[-1]
# Written only when somebody has changed rows behind the ledger's back.
NOT_PLAYED = {"step.tampered", "step.refused"}
# Kinds of notices: what people are told, and no entries.
NOT_PLAYED |= {"approval.reminder", "approval.superseded", "approval.cancelled"}
WAITS_VISIBLY = {StepState.STUCK, StepState.AWAITING_APPROVAL, StepState.CHANGE_REQUESTED}


@pytest.fixture(params=RELEASES, ids=lambda path: path.name)
def release(
    request: pytest.FixtureRequest,
    transactional_db: None,
    settings: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Path]:
    """The folder of a release whose ledger is in the database of this test."""
    monkeypatch.setenv("SHOP_AUTH", AUTH)
    settings.SAGA_TOOLS = str(request.param / "tools.toml")
    settings.SAGA_SHIFT_LINGER_S = 0.05
    settings.SAGA_LEASE_S = 1
    settings.SAGA_PROBE_APART_S = 0.2
    registry.cache_clear()
    tooling._rebuilt.cache_clear()
    golden.load(request.param)
    yield request.param
    registry.cache_clear()
    tooling._rebuilt.cache_clear()


@pytest.fixture
def target(stripe: str) -> Iterator[FaultProxy]:
    """Today's payment server, empty, at the address that golden ledgers know."""
    host, port = stripe.removeprefix("http://").split(":")
    wire = FaultProxy((host, int(port)), golden.PORT, host=golden.HOST)
    deadline = time.monotonic() + 60  # another run of these tests may be there
    while True:
        try:
            wire.start()
            break
        except OSError:
            assert time.monotonic() < deadline, f"{golden.HOST}:{golden.PORT} is taken"
            time.sleep(0.2)
    yield wire
    wire.stop()


def rows(folder: Path) -> list[dict[str, Any]]:
    text = (folder / "ledger.jsonl").read_text(encoding="utf-8")
    return [json.loads(line) for line in text.splitlines()]


def test_the_newest_golden_ledger_has_every_state_and_every_kind_of_entry() -> None:
    """A new state or a new kind belongs into a scene of tests/goldenplay.py."""
    found = rows(NEWEST)
    told = {row["row"]["kind"] for row in found if row["table"] == "ledger_entry"}
    source = "".join(
        path.read_text(encoding="utf-8")
        for folder in ("ledger/services", "approvals/services")
        for path in (ROOT / folder).glob("*.py")
    )
    nouns = "saga|step|attempt|approval|operator|residue|proposal"
    written = set(re.findall(rf'"((?:{nouns})\.[a-z_]+)"', source))
    assert written - told - NOT_PLAYED == set()
    states = {
        (row["table"], row["row"]["state"])
        for row in found
        if row["table"] in ("ledger_saga", "ledger_step", "ledger_idempotencyrecord")
    } | {
        ("ledger_" + ("saga" if not row["row"]["step_id"] else "step"), row["row"]["state"])
        for row in found
        if row["table"] == "ledger_entry" and row["row"]["state"]
    }
    wanted = {
        *(("ledger_saga", state.value) for state in SagaState),
        *(("ledger_step", state.value) for state in StepState),
        *(("ledger_idempotencyrecord", state.value) for state in RecordState),
    }
    assert wanted - states == set()


def test_it_verifies(release: Path) -> None:
    assert_verifies()
    assert Entry.objects.count() > 100


def test_every_digest_and_key_is_what_todays_code_makes_of_it(release: Path) -> None:
    """C111: what was recorded is found again: fingerprints, keys, tools, effect keys."""
    steps = list(Step.objects.all())
    for step in steps:
        assert keys.canonical(keys.parse_json(step.args_text.encode())) == step.args_text
        assert keys.fingerprint(step.args_text) == step.fingerprint
        assert step.idempotency_key == downstream(step, step.tool, step.args_text)
        for other in step.alternatives:
            assert keys.fingerprint(other["args_text"]) == other["fingerprint"]
            key = downstream(step, other["tool"], other["args_text"])
            assert other["idempotency_key"] == key
    for attempt in Attempt.objects.select_related("step"):
        assert attempt.idempotency_key in keys_of(attempt)
        record = IdempotencyRecord.objects.filter(pk=attempt.idempotency_key, step=attempt.step)
        assert record.exists()
    for claim in EffectClaim.objects.all():
        assert keys.skeleton(claim.key) == claim.skeleton
        assert keys.identity_text(claim.key) == claim.key
    in_file = ToolVersion.objects.exclude(key__startswith="bench.")
    assert in_file.count() > 5
    assert [one.key for one in in_file if tooling._rebuilt(one.digest) is None] == []


def downstream(step: Step, tool: str, args_text: str) -> str:
    return keys.downstream_key(str(step.saga_id), step.step_id, tool, args_text)


def keys_of(attempt: Attempt) -> set[str]:
    """The key of what was tried: of the choice, as it is now or as it was before an edit."""
    step, index = attempt.step, attempt.alternative
    before = [was for was in step.former if was["alternative"] == index]
    own = [downstream(step, was["tool"], was["args_text"]) for was in before]
    if index == 0:
        own.append(step.idempotency_key)
    elif index <= len(step.alternatives):
        own.append(step.alternatives[index - 1]["idempotency_key"])
    return {keys.direction_key(one, Direction(attempt.direction), index) for one in own}


def asked(step: Step) -> Proposal:
    """The step as its agent submitted it."""
    others = tuple(
        AlternativeProposal(one["tool"], json.loads(one["args_text"])) for one in step.alternatives
    )
    return Proposal(step.step_id, step.tool, step.args, step.reason, others, step.repeat_of_id)


def agent_of(saga: Any) -> Bearer:
    found = Agent.objects.get(pk=saga.agent_id)
    return Bearer(agent_id=found.pk, agent_name=found.name)


def test_what_has_finished_answers_and_nothing_runs(release: Path) -> None:
    before = Attempt.objects.count(), OutboxMessage.objects.count()
    finished = list(
        Step.objects.filter(state__in=STEP_FINISHED)
        .exclude(tool__startswith="bench.")
        .select_related("saga")
    )
    assert len(finished) > 10
    for step in finished:
        answer = propose(step.saga_id, asked(step), bearer=agent_of(step.saga))
        assert (answer.kind, answer.step) == ("replayed", step.pk), step.step_id
    for buried in StepTombstone.objects.exclude(saga_id__in=Saga.objects.values("pk")):
        saga = buried.saga_id
        agent = agent_of(tombstone(saga))
        args = {"email": f"{tombstone(saga).task_id}@example.com"}
        answer = propose(saga, Proposal(buried.step_id, buried.tool, args), bearer=agent)
        assert (answer.kind, answer.step) == ("replayed", buried.pk)
    assert (Attempt.objects.count(), OutboxMessage.objects.count()) == before
    assert_verifies()


def tombstone(saga: Any) -> Any:
    from ledger.models import Tombstone

    return Tombstone.objects.filter(saga_id=saga).latest("seq")


def test_a_task_opened_again_is_the_same_saga(release: Path) -> None:
    empty = [saga for saga in Saga.objects.all() if saga.opened_digest == digest_of(saga)]
    assert len(empty) > 5
    for saga in empty:
        opened = open_saga(Opening(saga.task_id, saga.name), bearer=agent_of(saga))
        assert (opened.saga, opened.created) == (saga.pk, False)


def digest_of(saga: Saga) -> str:
    return keys.fingerprint(keys.canonical({"name": saga.name, "steps": []}))


def test_what_is_in_flight_goes_on_or_waits_visibly(release: Path, target: FaultProxy) -> None:
    """C111: old sagas resume or park, with the reason; they never break."""
    in_flight = Saga.objects.exclude(state__in=SAGA_ENDED).count()
    assert in_flight > 10
    work(lambda: broken_off() == [], within_s=60, got_to=broken_off)
    assert_verifies()
    parked = Step.objects.get(tool="bench.noop")
    assert parked.state == StepState.QUEUED
    assert "not registered" in parked.held_why
    queued = Step.objects.filter(saga__task_id="queued")
    assert {step.state for step in queued} == {StepState.COMMITTED}
    for task in ("unknown", "killed-before-the-call", "retrying", "thawed"):
        assert Step.objects.get(saga__task_id=task).state == StepState.COMMITTED, task


def broken_off() -> list[str]:
    """Steps that neither end nor wait where a person sees them."""
    unfinished = Step.objects.exclude(state__in=STEP_FINISHED | WAITS_VISIBLY)
    return [
        f"{step.saga.task_id}: {step.step_id} is {step.state}"
        for step in unfinished.exclude(saga__state=SagaState.PAUSED).select_related("saga")
        if not step.held_why and step.state != StepState.WAITING
    ]


def test_under_other_tools_what_is_in_flight_runs_as_it_was_recorded_or_parks(
    release: Path, target: FaultProxy, settings: Any, tmp_path: Path
) -> None:
    """C111: the tools of today are other ones; an old step never runs silently under them."""
    tools = tmp_path / "tools.toml"
    text = (release / "tools.toml").read_text(encoding="utf-8")
    tools.write_text(
        text.replace('version = "1"', 'version = "2"').replace(golden.HOST, "127.0.0.1")
    )
    settings.SAGA_TOOLS = str(tools)
    registry.cache_clear()
    recorded = set(ToolVersion.objects.values_list("digest", flat=True))
    # Code that a person said yes to, by its digest, is not silent.
    recorded |= set(Step.objects.values_list("confirmed_tool", flat=True))
    work(lambda: broken_off() == [], within_s=60, got_to=broken_off)
    ran = Entry.objects.filter(kind="attempt.started").values_list("payload", flat=True)
    assert {json.loads(payload)["tool_digest"] for payload in ran} <= recorded
    # A yes is bound to a version: what was approved and not run is asked about anew.
    newer = Step.objects.filter(tool_version__version="2").exclude(tool="bench.noop")
    assert {step.state for step in newer} <= {StepState.AWAITING_APPROVAL}
    assert_verifies()


def test_its_exports_verify_and_come_back(release: Path) -> None:
    paths = list(release.glob("export-*.jsonl"))
    assert paths
    for path in paths:
        assert [str(fault) for fault in verify_file(path)] == []
        found = list(restore_file(path))
        assert [one.why_not for one in found] == [""] * len(found)
        assert {one.is_news for one in found} == {True, False}
    assert_verifies()


def test_a_pending_request_is_still_refused_to_whoever_asks_for_something_else(
    release: Path,
) -> None:
    """An in-flight step keeps its identity: other args under its name change nothing."""
    step = Step.objects.get(saga__task_id="approved-and-not-run")
    with pytest.raises(SagaError) as caught:
        propose(
            step.saga_id,
            Proposal(step.step_id, step.tool, step.args | {"amount": 9}),
            bearer=agent_of(step.saga),
        )
    assert caught.value.type == "step-mismatch"
