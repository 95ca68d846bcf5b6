"""`manage.py worker`: an RQ worker on exactly one queue, for shifts and nothing else."""

from __future__ import annotations

from typing import Any

import django_rq
from rq import SimpleWorker
from rq.serializers import JSONSerializer

from ledger import shift
from ledger.management.prepared import PreparedCommand
from ledger.outbox import QUEUE
from ledger.tools.installed import required


class ShiftWorker(SimpleWorker):
    """Runs shifts in its own process: a shift lasts, so a fork a job would buy nothing.

    One queue, so that RQ moves jobs atomically (shared knowledge of RQ: with several it pops
    and can lose one). When Redis is away it asks again within two seconds.
    """

    max_connection_wait_time = 2

    def request_stop(self, signum: int, frame: Any) -> None:
        """First signal: the shift takes nothing new and ends when its calls have."""
        shift.stopping.set()
        super().request_stop(signum, frame)  # type: ignore[no-untyped-call]


class Command(PreparedCommand):
    help = "Work shifts: claim approved steps and undos, and carry them out."

    def handle(self, *args: Any, **options: Any) -> None:
        required()
        queue = django_rq.get_queue(QUEUE)
        worker = ShiftWorker([queue], connection=queue.connection, serializer=JSONSerializer)
        worker.work(with_scheduler=False, logging_level="WARNING")
