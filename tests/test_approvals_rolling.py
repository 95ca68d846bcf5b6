"""Workers of two releases side by side: people are asked once, and not back and forth."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from approvals.models import Approval
from approvals.services import deciding
from ledger.bearer import Bearer
from ledger.models import OutboxMessage
from ledger.services import retooling
from ledger.states import StepState
from ledger.tools.installed import registry
from tests.approvalcast import TOOL, Case, claim, person, waiting_case
from tests.shop import assert_verifies

pytestmark = pytest.mark.django_db(transaction=True)

Release = Callable[[str], None]


@pytest.fixture
def release(settings: Any, tmp_path: Path) -> Iterator[Release]:
    """Which release the worker is of that claims next: a version of `money.refund`."""

    def use(version: str) -> None:
        text = TOOL.format(name="money.refund", tier="pivot", blast="high")
        file = tmp_path / f"tools-{version}.toml"
        file.write_text(text.replace('version = "1"', f'version = "{version}"'), encoding="utf-8")
        settings.SAGA_TOOLS = str(file)
        registry.cache_clear()

    use("1")
    yield use
    registry.cache_clear()


@pytest.fixture
def asked_under_2(release: Release) -> tuple[Case, Bearer]:
    """A refund that was approved under release 1, asked anew by a worker of 2, and approved."""
    ana, case = person("ana", "approvers"), waiting_case()
    deciding.approve(ana, case.request.pk, args_digest=case.digest)
    release("2")
    assert claim() == []
    assert "1 then, 2 now" in case.request.why
    deciding.approve(ana, case.request.pk, args_digest=case.digest)
    return case, ana


def test_a_worker_of_the_old_release_leaves_it_to_those_of_the_new(
    release: Release, asked_under_2: tuple[Case, Bearer]
) -> None:
    case, _ = asked_under_2
    yes = case.request
    for _ in range(2):
        release("1")
        assert claim() == []
        assert (case.request.pk, case.request.state) == (yes.pk, "approved")
        assert case.row.state == StepState.QUEUED
        time.sleep(retooling.LOOK_AGAIN_S + 0.1)
    assert not OutboxMessage.objects.exclude(parked_why="").exists()
    release("2")
    (found,) = claim()
    assert (found.step, found.tool.version) == (case.step, "2")
    assert Approval.objects.filter(step=case.step).count() == 2
    assert_verifies()


def test_a_release_that_was_taken_back_is_asked_about_when_no_newer_worker_comes(
    release: Release, asked_under_2: tuple[Case, Bearer], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody has the newer one any more: then today's is the older, and people decide on that."""
    monkeypatch.setattr(retooling, "LEFT_TO_NEWER_S", 0.5)
    case, ana = asked_under_2
    time.sleep(0.6)
    release("1")
    assert claim() == []
    assert (case.request.state, case.request.tool_version) == ("pending", "1")
    assert "2 then, 1 now" in case.request.why
    deciding.approve(ana, case.request.pk, args_digest=case.digest)
    (found,) = claim()
    assert found.tool.version == "1"
