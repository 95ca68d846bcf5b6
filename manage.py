#!/usr/bin/env python
"""Django's command line, with a database and a Redis behind it.

Every command finds the embedded servers of its SAGA_HOME, and starts them for its own time
when nobody has, unless DATABASE_URL and REDIS_URL name others.
"""

import os
import sys

from saga_console.home import HomeError
from saga_console.parts import UnfitPart, check_postgres, check_redis
from saga_console.servers import ensure_servers

# These touch neither database nor queue, or (`up`) see to it themselves.
WITHOUT_SERVERS = {
    "",
    "check",
    "collectstatic",
    "compilemessages",
    "diffsettings",
    "findstatic",
    "help",
    "makemessages",
    "makemigrations",
    "policy check",
    "startapp",
    "up",
    "verify_export",
    "version",
}

# Started alone they check themselves what `up` checks for its children (case C33).
RINGS_AND_WORKS = {"relay", "worker"}
# The first that an external database hears of the console, and those that write intents into it.
NEEDS_A_SAFE_DATABASE = {"prepare_console", *RINGS_AND_WORKS}


def main(argv: list[str]) -> None:
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "saga_console.settings")
    words = [word for word in argv[1:] if not word.startswith("-")]
    command = words[0] if words else ""
    asks_for_help = "--help" in argv or "-h" in argv
    if not {command, " ".join(words[:2])} & WITHOUT_SERVERS and not asks_for_help:
        try:
            ensure_servers()
            if command in NEEDS_A_SAFE_DATABASE:
                check_postgres(os.environ["DATABASE_URL"])
            if command in RINGS_AND_WORKS:
                check_redis(os.environ["REDIS_URL"])
        except (HomeError, UnfitPart) as error:
            sys.exit(str(error))
    from django.core.management import execute_from_command_line  # noqa: PLC0415

    execute_from_command_line(argv)


if __name__ == "__main__":
    main(sys.argv)
