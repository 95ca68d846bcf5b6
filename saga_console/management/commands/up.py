from __future__ import annotations

from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from ledger.tools.installed import required
from saga_console import environment
from saga_console.home import HomeError, current_home
from saga_console.up import CannotStart, Console, Plan, default_workers, host_of

_LAST_PORT = 65_535


class Command(BaseCommand):
    help = "Run the whole console in the foreground: servers, web, relay and workers."
    requires_system_checks: list[str] = []  # each child checks itself

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--host", default=environment.text("SAGA_HOST", "127.0.0.1"))
        parser.add_argument("--port", type=int, help="8400, or what PORT says")
        parser.add_argument("--workers", type=int, default=default_workers())
        parser.add_argument("--demo", action="store_true", help="also play the demo")
        parser.add_argument("--once", action="store_true", help="play the demo, report and stop")

    def handle(self, *args: Any, **options: Any) -> None:
        port = options["port"]
        if port is None:
            port = environment.number("PORT", 8400, at_least=1)
        if not 1 <= port <= _LAST_PORT:
            raise CommandError(f"--port, or PORT: use a number from 1 to {_LAST_PORT}, not {port}")
        if options["workers"] < 1:
            raise CommandError("--workers: at least one is needed, or nothing would ever run")
        host = host_of(options["host"])
        plan = Plan(host, port, options["workers"], options["demo"], options["once"])
        if not (plan.demo or plan.once):  # it brings tools of its own
            required()
        try:
            status = Console(current_home(), plan).run()
        except (CannotStart, HomeError) as error:
            raise SystemExit(str(error)) from None
        if status:
            raise SystemExit(status)
