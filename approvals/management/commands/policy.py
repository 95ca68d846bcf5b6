"""`manage.py policy check FILE` and `manage.py policy explain STEP-ID`."""

from __future__ import annotations

import sys
from typing import Any
from uuid import UUID

from django.core.management.base import BaseCommand, CommandError, CommandParser

from approvals import policy, queries_limits, queries_policy, wording
from approvals.policyfile import InvalidPolicy, read


class Command(BaseCommand):
    help = "Check a policy file, or explain which rule decides about a step and why."

    # A file can be checked where nothing of the console runs.
    requires_system_checks = ()

    def add_arguments(self, parser: CommandParser) -> None:
        tasks = parser.add_subparsers(dest="task", required=True, metavar="check|explain")
        check = tasks.add_parser("check", help="exit 0, or 1 with every fault and its line")
        check.add_argument("file", metavar="FILE")
        explain = tasks.add_parser("explain", help="which rule decides about a step, and why")
        explain.add_argument("step", metavar="STEP-ID", help="the step's id, as the API shows it")

    def handle(self, *_: Any, **options: Any) -> None:
        if options["task"] == "check":
            self._check(options["file"])
        else:
            self._explain(options["step"])

    def _check(self, file: str) -> None:
        try:
            found = read(file)
        except InvalidPolicy as error:
            self.stdout.write(str(error))
            sys.exit(1)
        own = len(found.rules) - len(policy.DEFAULT.rules)
        self.stdout.write(
            f"{file}: {own} rules before the default ones, {len(found.limits)} limits, "
            f"digest {found.digest}"
        )

    def _explain(self, name: str) -> None:
        found = queries_policy.judged(_step_id(name))
        if found is None:
            raise CommandError(f"There is no step {name}.")
        question, now = found.question, policy.current()
        tell = self.stdout.write
        tell(f"step {question.step['step_id']} of {question.agent}: {question.tool}")
        tell(f"recorded: {found.verdict}, by rule “{found.rule}” of policy {found.policy_digest}")
        if found.doubt:
            tell(f"the ledger itself wants a person: {found.doubt}")
        if found.policy_digest == now.digest:
            tell("that is the policy of now, and it says:")
        else:
            tell(f"the verdict stands; the policy of now, {now.digest}, would say:")
        for at, reason in enumerate(wording.reasons(now, question), start=1):
            tell(f"  {at}. “{reason.rule}” ({reason.verdict}): {reason.why}")
        for use in queries_limits.uses(
            now.limits, question.tool, question.agent, question.args, found.key
        ):
            tell(f"  limit “{use.limit.name}”: {use.sentence()}")


def _step_id(name: str) -> UUID:
    try:
        return UUID(name)
    except ValueError:
        raise CommandError(f"{name!r} is no step's id; it is the `id` of a step.") from None
