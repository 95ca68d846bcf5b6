"""RQ's own forking worker, whose parent has used the database before it forks (case P28).

python -m tests.crash.forker
"""

from __future__ import annotations

import os

import django

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "saga_console.settings")
django.setup()

import django_rq  # noqa: E402
from django.db import connection  # noqa: E402
from rq import Worker  # noqa: E402
from rq.serializers import JSONSerializer  # noqa: E402

from ledger.outbox import QUEUE  # noqa: E402


def main() -> None:
    with connection.cursor() as cursor:
        cursor.execute("SELECT 1")  # a pool, a socket and its threads: none may be used after it
    queue = django_rq.get_queue(QUEUE)
    worker = Worker([queue], connection=queue.connection, serializer=JSONSerializer)
    worker.work(with_scheduler=False, logging_level="WARNING")


if __name__ == "__main__":
    main()
