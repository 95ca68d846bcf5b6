"""Make or change an operator, and print a new token on stdout, alone."""

from __future__ import annotations

import sys
from typing import Any

from django.core.exceptions import ValidationError
from django.core.management.base import CommandError, CommandParser

from ledger.errors import SagaError
from ledger.management.prepared import PreparedCommand
from ledger.services import tokens


class Command(PreparedCommand):
    help = "Print a new token for a person, who is made when new. It cannot be shown again."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("name", metavar="NAME")
        parser.add_argument("--group", required=True, choices=tokens.GROUPS)
        parser.add_argument(
            "--renew", action="store_true", help="revoke the tokens that the person had before"
        )
        parser.add_argument(
            "--password-stdin",
            action="store_true",
            help="read the password for the pages from the first line of stdin",
        )

    def handle(self, *_: Any, **options: Any) -> None:
        password = None
        if options["password_stdin"]:
            # Only the line end is not part of it: blanks may be.
            password = sys.stdin.readline().rstrip("\r\n")
            if not password:
                raise CommandError("--password-stdin: the first line of stdin is empty.")
        try:
            person = tokens.seat_operator(
                options["name"], group=options["group"], password=password
            )
        except SagaError as error:
            raise CommandError(error.detail) from None
        except ValidationError as error:
            raise CommandError(" ".join(error.messages)) from None
        self.stdout.write(tokens.issue_operator_token(person, renew=options["renew"]))
