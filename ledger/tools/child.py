"""The other side of ledger/tools/apart.py: `python -m ledger.tools.child`, asked on stdin.

Reads one question, makes one call of one tool, prints one line of JSON as its last, and ends.
What the tool itself prints goes to stderr.
"""

from __future__ import annotations

import json
import sys
from contextlib import redirect_stdout
from dataclasses import asdict
from importlib import import_module
from typing import Any

import django

from ledger.outcomes import Outcome, Sighting, StillUnknown
from ledger.states import Direction
from ledger.tools.contract import Call, Tool, describe, json_fault
from ledger.tools.python import PythonTarget, tools_in


def answered(asked: dict[str, Any]) -> dict[str, Any]:
    """The outcome or sighting, as its members and its kind."""
    django.setup()
    found = {tool.key: tool for tool in tools_in(import_module(asked["module"]))}
    tool = found.get(asked["key"])
    if tool is None or tool.digest != asked["digest"]:
        return {"why": "the code on the disk is not the one that the worker has loaded"}
    call = Call(**{**asked["call"], "direction": Direction(asked["call"]["direction"])})
    came: Outcome | Sighting
    if asked["what"] == "run":
        came = tool.run(call)
    elif asked["what"] == "probe":
        came = tool.probe(call)
    else:
        came = _checked(tool, call)
    return {"kind": type(came).__name__, **asdict(came)}


def _checked(tool: Tool, call: Call) -> Sighting:
    assert isinstance(tool.target, PythonTarget)
    try:
        return tool.target.check(call)
    except BaseException as error:
        return StillUnknown(f"the check of {tool.key} stopped with {describe(error)}")


def main() -> None:
    """Answer, whatever the tool's code does to stdout."""
    with redirect_stdout(sys.stderr):
        said = answered(json.load(sys.stdin))
    if fault := json_fault(said):
        said = {"why": f"it answered what is not JSON: {fault}"}
    sys.stdout.write(json.dumps(said) + "\n")


if __name__ == "__main__":
    main()
