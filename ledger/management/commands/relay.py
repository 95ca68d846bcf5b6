"""`manage.py relay`: ring for shifts and act on the clock, until told to stop."""

from __future__ import annotations

import signal
import threading
from typing import Any

from ledger import outbox
from ledger.management.prepared import PreparedCommand
from ledger.postman import Postman
from ledger.tools.installed import required


class Command(PreparedCommand):
    help = "Ring for shifts, act on what time brings, send messages. Run as many as you like."

    def handle(self, *args: Any, **options: Any) -> None:
        stop = threading.Event()
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda *_: stop.set())
        required()  # knows what must never leave in a message
        messages = threading.Thread(target=Postman().run, args=[stop], name="messages", daemon=True)
        messages.start()
        self.stdout.write("relay: listening")
        outbox.run_forever(stop.is_set)
        messages.join(2.0)  # a receiver that hangs keeps nobody: its message is sent again
