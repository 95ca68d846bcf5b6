"""Give somebody the permission to break the glass, or take it away."""

from __future__ import annotations

from typing import Any

from django.contrib.auth import get_user_model
from django.contrib.auth.models import Permission
from django.core.management.base import CommandError, CommandParser

from ledger.management.prepared import PreparedCommand


class Command(PreparedCommand):
    help = "Let a person say yes alone in an incident; each such yes leaves an open review."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("name", metavar="NAME")
        parser.add_argument("--revoke", action="store_true", help="take the permission away")

    def handle(self, *_: Any, **options: Any) -> None:
        people: Any = get_user_model().objects
        person = people.filter(username=options["name"], is_active=True).first()
        if person is None:
            raise CommandError(f"There is no active person {options['name']!r}.")
        permission = Permission.objects.get(
            codename="break_glass", content_type__app_label="approvals"
        )
        if options["revoke"]:
            person.user_permissions.remove(permission)
            self.stderr.write(f"{person} may no longer break the glass.")
            return
        person.user_permissions.add(permission)
        self.stderr.write(f"{person} may break the glass now.")
