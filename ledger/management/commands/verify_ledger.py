"""`manage.py verify_ledger`: exit 0 when the log is the state, 1 with the first faults if not."""

from __future__ import annotations

import sys
from typing import Any

from ledger.management.prepared import PreparedCommand
from ledger.services.verifying import verify

# Enough to see a pattern; a broken ledger may have millions.
SHOWN = 20


class Command(PreparedCommand):
    help = "Replay every entry, compare with the rows, and check every hash chain and checkpoint."

    def handle(self, *args: Any, **options: Any) -> None:
        sagas = 0

        def count(number: int) -> None:
            nonlocal sagas
            sagas = number
            if number % 10_000 == 0:
                self.stderr.write(f"{number} sagas verified")

        shown = 0
        for fault in verify(count):
            self.stdout.write(str(fault))
            shown += 1
            if shown == SHOWN:
                self.stdout.write("… and perhaps more; these come first")
                break
        if shown:
            sys.exit(1)
        self.stdout.write(f"the ledger verifies: {sagas} sagas")
