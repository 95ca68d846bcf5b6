"""`manage.py restore FILE [--saga ID]`: archived sagas come back, verified. Repeatable."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any
from uuid import UUID

from django.core.management.base import CommandError, CommandParser

from ledger.exports import BadExport
from ledger.management.prepared import PreparedCommand
from ledger.services.restoring import restore_file

TELL_EVERY = 1_000


class Command(PreparedCommand):
    help = "Put the sagas of an export back, as they left. Exit 1 when one could not be."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("file", type=Path)
        parser.add_argument("--saga", type=UUID, metavar="ID", help="only this one")

    def handle(self, *args: Any, **options: Any) -> None:
        back = refused = 0
        try:
            for count, saga in enumerate(
                restore_file(options["file"], only=options["saga"]), start=1
            ):
                back += saga.is_news and not saga.why_not
                if saga.why_not:
                    refused += 1
                    self.stderr.write(f"saga {saga.saga}: {saga.why_not}")
                if count % TELL_EVERY == 0:
                    self.stderr.write(f"{count} sagas read, {back} are back")
        except (BadExport, OSError) as error:
            raise CommandError(str(error)) from None
        self.stdout.write(f"{back} sagas are back")
        if refused:
            sys.exit(1)
