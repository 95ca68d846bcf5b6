from __future__ import annotations

import fcntl
import os
import subprocess
import sys
from typing import Any

from django.core.management import call_command
from django.core.management.base import BaseCommand, CommandError

from saga_console import environment
from saga_console.home import BASE_DIR, current_home
from saga_console.locks import open_lock, try_lock


class Command(BaseCommand):
    help = "Fill this home with sagas in every state, on real targets. Repeatable."

    def handle(self, *_: Any, **__: Any) -> None:
        if os.environ.get("SAGA_DEMO") == "1":
            # In the child that `_with_targets` starts, whose settings know the demo's tools.
            from saga_console.demo import seeds  # noqa: PLC0415

            seeds.plant(self.stdout.write)
            return
        home = current_home()
        home.create()
        held = open_lock(home.run / "up.lock")
        try:
            if not try_lock(held, fcntl.LOCK_EX):
                raise CommandError(f"{home.root} is in use: stop the console first")
            call_command("migrate", interactive=False, verbosity=0)
            self._with_targets()
        finally:
            os.close(held)
        self.stdout.write(
            "Look at it: `make demo` (or `manage.py up --demo`) prints the logins; then, as oskar, "
            f"http://127.0.0.1:{environment.number('PORT', 8400, at_least=1)}/attention/"
        )

    def _with_targets(self) -> None:
        from saga_console import demo  # noqa: PLC0415  (its packages are the demo's alone)

        env = {**os.environ, **demo.prepare(current_home().root), **SHORT_SHIFTS}
        try:
            argv = [sys.executable, str(BASE_DIR / "manage.py"), "seed"]
            status = subprocess.run(argv, env=env, check=False).returncode  # noqa: S603
        finally:
            demo.stop()
        if status:
            raise CommandError("not everything could be sown (see above)")


# The seed's own shifts end soon after their work: nobody else brings them any.
SHORT_SHIFTS = {"SAGA_SHIFT_LINGER_S": "1"}
