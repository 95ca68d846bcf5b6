"""The cast of the tests about retention: ended sagas, and an archive of all that may leave."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

from ledger.gate import gate
from ledger.services import closing, telling
from ledger.services.archiving import Report, Wish, archive
from ledger.services.verifying_exports import verify_file
from tests.shop import Shop, broken, customer, work_saga


def ended(shop: Shop, *, task_id: str = "", email: str = "ada@example.com") -> UUID:
    """A saga that has completed with one customer."""
    saga = shop.open(customer("one", email), task_id=task_id)
    closing.complete(saga, bearer=shop.bearer)
    work_saga(saga, "completed")
    return saga


def undone(shop: Shop) -> UUID:
    """A saga that ended backwards: its customer is deleted again."""
    saga = shop.open(customer("one", "eve@example.com"), broken("two"))
    work_saga(saga, "compensated")
    return saga


def tell() -> None:
    """A turn of the relay: what became of sagas and of requests is told."""
    telling.spread_sagas()
    gate().sweep()


def archive_all(folder: Path, **more: Any) -> Report:
    """Archive whatever may leave, however young."""
    tell()
    return archive(Wish(timedelta(0), folder / "archive", **more))


def faults_of(path: Path) -> list[str]:
    """What is wrong with an export."""
    return [str(fault) for fault in verify_file(path)]
