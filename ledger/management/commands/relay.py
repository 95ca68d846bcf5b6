"""`manage.py relay`: ring for shifts and act on the clock, until told to stop."""

from __future__ import annotations

import signal
import threading
from typing import Any

from django.core.management.base import BaseCommand

from ledger import outbox


class Command(BaseCommand):
    help = "Ring for shifts when work waits, and act on what time brings. Run as many as you like."

    def handle(self, *args: Any, **options: Any) -> None:
        stop = threading.Event()
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda *_: stop.set())
        self.stdout.write("relay: listening")
        outbox.run_forever(stop.is_set)
