from __future__ import annotations

from typing import Any

from django.core.management.base import CommandParser

from ledger.management.prepared import PreparedCommand


class Command(PreparedCommand):
    help = "Play the demo against a console that is running with `up --demo`."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--port", type=int, required=True)
        parser.add_argument("--once", action="store_true")

    def handle(self, *args: Any, **options: Any) -> None:
        from saga_console import demo  # noqa: PLC0415  (its packages are the demo's alone)

        status = demo.main(once=options["once"], port=options["port"])
        if status:
            raise SystemExit(status)
