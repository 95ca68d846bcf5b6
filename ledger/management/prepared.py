from __future__ import annotations

from django.core.management.base import BaseCommand


class PreparedCommand(BaseCommand):
    """For a console that `prepare_console` has seen: that checks the code, once for every start.

    Checked again by each command, all URLs and their schemas are loaded, which is a third of the
    start of a worker that serves none of them.
    """

    requires_system_checks: list[str] = []
