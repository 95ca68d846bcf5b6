"""What became of a saga is told before it leaves; one that has left holds up no other's news."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest

from approvals.services import spreading
from ledger.models import Message, Notice, Saga
from ledger.models.fields import uuid7
from ledger.services import archiving, closing, telling
from ledger.services.archiving import Report, Wish, archive, held_back
from ledger.services.opening import open_saga
from ledger.services.proposals import Opening
from tests.approvalcast import agent, tools, waiting_case

__all__ = ["tools"]
pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("tools")]


@pytest.fixture(autouse=True)
def a_host_that_is_allowed(settings: Any) -> None:
    settings.SAGA_WEBHOOK_HOSTS = ["hooks.example"]


def ended() -> UUID:
    """A saga that has ended, and whose agent wants to hear of it."""
    caller = agent(f"caller-{uuid4().hex[:6]}")
    opening = Opening(str(uuid4()), "Cancel order 7", webhook="https://hooks.example/x")
    saga = open_saga(opening, bearer=caller).saga
    closing.complete(saga, bearer=caller)
    return saga


def now(folder: Path) -> Report:
    return archive(Wish(timedelta(0), folder / "archive"))


def test_a_saga_leaves_when_its_end_has_been_told(tmp_path: Path) -> None:
    saga = ended()
    assert now(tmp_path).exported == 0
    assert held_back(Wish(timedelta(0), tmp_path)) == (1, 0)
    assert telling.spread_sagas() == 1
    assert now(tmp_path).left == 1
    assert not Saga.objects.filter(pk=saga).exists()
    assert Message.objects.get().content["data"]["saga_id"] == str(saga)


@pytest.mark.by_hand
def test_news_that_come_after_its_export_was_written_keep_a_saga_here(tmp_path: Path) -> None:
    saga = ended()
    telling.spread_sagas()
    bury_all, said = archiving._bury_all, list[str]()

    def meanwhile(export: UUID, path: Path, actor: str, _say: object) -> int:
        Notice.objects.create(saga_id=saga, about=saga, kind="saga.stuck", round=9)
        return bury_all(export, path, actor, said.append)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(archiving, "_bury_all", meanwhile)
        assert now(tmp_path).left == 0
    assert any("what became of it is still to be told" in one for one in said)
    assert Saga.objects.filter(pk=saga).exists()


@pytest.mark.by_hand
def test_the_untold_news_of_sagas_that_left_hold_up_no_others() -> None:
    """An earlier release let them leave."""
    for _ in range(telling.BATCH + 1):
        gone = uuid7()
        Notice.objects.create(saga_id=gone, about=gone, kind="saga.completed")
    saga = ended()
    assert telling.spread_sagas() == 1
    assert Notice.objects.get(saga_id=saga).spread_at is not None


@pytest.mark.by_hand
def test_news_that_cannot_be_told_hold_up_no_others_however_many_they_are() -> None:
    case = waiting_case()
    assert spreading.spread() == 1
    for _ in range(telling.BATCH + 1):
        # About requests that are not there.
        Notice.objects.create(saga_id=case.saga, about=uuid7(), kind="approval.requested")
    later = waiting_case(id="p2")
    assert spreading.spread() == 1
    assert Notice.objects.get(about=later.request.pk).spread_at is not None
