"""`manage.py archive --older-than 90d`: ended sagas leave for an export that can be verified."""

from __future__ import annotations

import re
from argparse import ArgumentTypeError
from datetime import timedelta
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management.base import CommandError, CommandParser

from ledger.exports import BadExport
from ledger.management.prepared import PreparedCommand
from ledger.services.archiving import ArchiveBusy, Wish, archive, due, held_back
from ledger.spoken import counted

_SPANS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}


def span(text: str) -> timedelta:
    """`90d`, `36h`, `0s`."""
    found = re.fullmatch(r"(\d{1,6})([smhdw])", text)
    if found is None:
        raise ArgumentTypeError(f"{text!r} is no span such as 90d or 36h")
    return timedelta(**{_SPANS[found[2]]: int(found[1])})


class Command(PreparedCommand):
    help = (
        "Move ended sagas that nobody has asked about for so long to a verified export (JSONL), "
        "each leaving a tombstone that still answers for its steps."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--older-than", type=span, required=True, metavar="90d")
        parser.add_argument("--to", type=Path, default=settings.SAGA_ARCHIVE, metavar="DIR")
        parser.add_argument("--dry-run", action="store_true", help="say what would leave")
        parser.add_argument(
            "--with-residue",
            action="store_true",
            help="also sagas whose residue nobody has acknowledged",
        )

    def handle(self, *args: Any, **options: Any) -> None:
        wish = Wish(options["older_than"], options["to"], options["with_residue"])
        if options["dry_run"]:
            self._tell(wish)
            return
        try:
            report = archive(wish, self.stderr.write)
        except ArchiveBusy:
            raise CommandError("another archive runs on this ledger") from None
        except (BadExport, OSError) as error:
            raise CommandError(str(error)) from None
        left = report.left + report.finished
        where = f" by {report.path}" if report.path else ""
        self.stdout.write(
            f"{counted(left, 'saga')} left the ledger{where}" if left else "nothing has left"
        )
        gone = report.forgotten
        if gone.total:
            self.stdout.write(
                f"gone too: {counted(gone.messages, 'message')}, {counted(gone.notices, 'notice')} "
                f"of sagas that left, {counted(gone.of_gate, 'reservation')} of limits past use"
            )

    def _tell(self, wish: Wish) -> None:
        count = sum(1 for _ in due(wish))
        is_open, residue = held_back(wish)
        self.stdout.write(f"{counted(count, 'saga')} would leave for {wish.folder}")
        if is_open:
            self.stdout.write(f"{is_open} as old stay: something of them is open")
        if residue and not wish.with_residue:
            self.stdout.write(
                f"{residue} as old stay: nobody has acknowledged their residue (--with-residue)"
            )
