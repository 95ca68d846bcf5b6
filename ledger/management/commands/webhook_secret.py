"""Print the key under which the webhooks of an agent's sagas are signed, alone."""

from __future__ import annotations

from typing import Any

from django.core.management.base import CommandError, CommandParser

from ledger import storage
from ledger.management.prepared import PreparedCommand
from ledger.services import telling


class Command(PreparedCommand):
    help = "Print the signing key (whsec_…) of an agent's saga webhooks. It is always the same."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("name", metavar="NAME")

    def handle(self, *_: Any, **options: Any) -> None:
        agent = storage.row("SELECT id FROM ledger_agent WHERE name = %s", [options["name"]])
        if agent is None:
            raise CommandError(f"There is no agent {options['name']!r}.")
        self.stdout.write(telling.signing_secret(agent.id))
