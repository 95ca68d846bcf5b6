from __future__ import annotations

from typing import Any

from django.core.management import call_command
from django.core.management.base import BaseCommand
from django.db import connection

# Any number, as long as nothing else in the database uses it: two consoles that start at the
# same moment on one external database migrate one after the other.
_MIGRATION_LOCK = 0x5A6A


class Command(BaseCommand):
    help = "Bring the database and the static files up to date. Repeatable."

    def handle(self, *args: Any, **options: Any) -> None:
        with connection.cursor() as cursor:
            # A migration of a large ledger may take its time, and so may waiting for one.
            cursor.execute("SET statement_timeout = 0")
            cursor.execute("SET lock_timeout = '60s'")
            cursor.execute("SELECT pg_advisory_lock(%s)", [_MIGRATION_LOCK])
        call_command("migrate", interactive=False, verbosity=0)
        call_command("collectstatic", interactive=False, verbosity=0)
        self.stdout.write("database and static files are up to date")
