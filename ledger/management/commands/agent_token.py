"""Print a new token of an agent on stdout, alone, so that a script can take it."""

from __future__ import annotations

from typing import Any

from django.core.management.base import CommandError, CommandParser

from ledger.errors import SagaError
from ledger.management.prepared import PreparedCommand
from ledger.services import tokens


class Command(PreparedCommand):
    help = "Print a new token for an agent. It cannot be shown again."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("name", metavar="NAME")
        parser.add_argument(
            "--tools",
            nargs="+",
            default=[],
            metavar="PATTERN",
            help="tools it may propose, such as 'payments.*'; default: every tool, or with --renew "
            "those of the tokens before",
        )
        parser.add_argument("--owner", metavar="USERNAME", help="who answers for the agent")
        parser.add_argument(
            "--renew", action="store_true", help="revoke the tokens that the agent had before"
        )
        parser.add_argument(
            "--revoke", action="store_true", help="revoke every token of the agent; print nothing"
        )

    def handle(self, *_: Any, **options: Any) -> None:
        name = options["name"]
        if options["revoke"]:
            revoked = tokens.revoke_agent_tokens(name)
            self.stderr.write(f"{revoked} token(s) of {name} revoked.")
            return
        try:
            token = tokens.issue_agent_token(
                name, tools=options["tools"], owner=options["owner"], renew=options["renew"]
            )
        except SagaError as error:
            raise CommandError(error.detail) from None
        self.stdout.write(token)
