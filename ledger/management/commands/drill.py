"""`manage.py drill TOOL`: execute and undo a tool in its sandbox, and say what came of it."""

from __future__ import annotations

import getpass
import sys
import time
from typing import Any
from uuid import UUID

from django.core.management.base import CommandError, CommandParser

from ledger.errors import SagaError
from ledger.keys import parse_json
from ledger.legs import DrillState
from ledger.management.prepared import PreparedCommand
from ledger.masking import redact
from ledger.queries import drills
from ledger.services import drilling
from ledger.tools.faults import InvalidTools
from ledger.tools.installed import registry
from ledger.tools.sandbox import undo_of

# Often enough to feel like watching, and one read of a few rows each time.
LOOK_AGAIN_S = 0.3
# A worker that is there takes a drill within a second or so.
SAY_SO_AFTER_S = 10.0


class Command(PreparedCommand):
    help = "Execute and undo a tool for real in its declared sandbox. Exit 0 only if it worked."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("tool", metavar="TOOL", nargs="?")
        parser.add_argument(
            "--args", dest="given", metavar="JSON", help="instead of the declared example args"
        )
        parser.add_argument(
            "--all", action="store_true", help="every tool that declares a sandbox, one by one"
        )
        parser.add_argument("--reason", default="manage.py drill", help="is kept with the drill")

    def handle(self, *_: Any, **options: Any) -> None:
        if bool(options["tool"]) == options["all"]:
            raise CommandError("Name one tool, or say --all.")
        if options["all"] and options["given"]:
            raise CommandError("--args are for one tool.")
        try:
            registry()
        except InvalidTools as error:
            raise CommandError(f"SAGA_TOOLS cannot be used here:\n{error}") from None
        wanted = self._drillable() if options["all"] else [options["tool"]]
        states = [self._drill(key, options) for key in wanted]
        if any(state is not DrillState.WORKED for state in states):
            sys.exit(1)

    def _drillable(self) -> list[str]:
        tools = [tool for tool in registry().all() if undo_of(tool)]
        for tool in tools:
            if tool.drill is None:
                self.stderr.write(f"{tool.key}: declares no sandbox, so nobody knows its undo")
        wanted = [tool.key for tool in tools if tool.drill]
        if not wanted:
            raise CommandError("No tool that can be undone declares a sandbox: see docs/tools.md.")
        return wanted

    def _drill(self, key: str, options: dict[str, Any]) -> DrillState:
        try:
            args = parse_json(options["given"].encode()) if options["given"] else None
            drill = drilling.ask(
                key, args=args, reason=options["reason"], actor=f"shell:{getpass.getuser()}"
            )
        except SagaError as refusal:
            if not options["all"]:
                raise CommandError(refusal.detail) from None
            self.stderr.write(f"{key}: {refusal.detail}")
            return DrillState.REFUSED
        return self._watch(drill)

    def _watch(self, drill: UUID) -> DrillState:
        told, is_begun, said_so, began = 0, False, False, time.monotonic()
        while True:
            now = drills.one(drill)
            assert now is not None, "a drill is never deleted"
            if now.started_at and not is_begun:
                is_begun = True
                self.stdout.write(f"{now.tool} version {now.version}, in {now.sandbox}")
            for leg in now.legs[told:]:
                self.stdout.write(
                    f"  {leg.leg:<8} {leg.outcome:<11} {leg.took_ms} ms  {redact(leg.said)}"
                )
            told = len(now.legs)
            if now.is_over:
                self.stdout.write(f"{now.tool}: {now.state}. {redact(now.said)}")
                return now.state
            if now.state is DrillState.WAITING and not said_so:
                said_so = self._nobody_yet(began)
            time.sleep(LOOK_AGAIN_S)

    def _nobody_yet(self, began: float) -> bool:
        if time.monotonic() - began < SAY_SO_AFTER_S:
            return False
        self.stderr.write("No worker has taken it yet: does `manage.py up` run? Still waiting.")
        return True
