"""`manage.py verify_export FILE`: exit 0 when the file is whole and every saga in it verifies.

Needs no database: digests, chains and rows are all in the file.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandParser

from ledger.services.verifying_exports import verify_file
from ledger.spoken import counted

# Enough to see a pattern.
SHOWN = 20


class Command(BaseCommand):
    help = "Check an export: its digests, each saga's chain, and what its rows should be."
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("file", type=Path)

    def handle(self, *args: Any, **options: Any) -> None:
        sagas = 0

        def count(number: int) -> None:
            nonlocal sagas
            sagas = number
            if number % 10_000 == 0:
                self.stderr.write(f"{number} sagas verified")

        shown = 0
        for fault in verify_file(options["file"], count):
            self.stdout.write(str(fault))
            shown += 1
            if shown == SHOWN:
                self.stdout.write("… and perhaps more; these come first")
                break
        if shown:
            sys.exit(1)
        self.stdout.write(f"the export verifies: {counted(sagas, 'saga')}")
