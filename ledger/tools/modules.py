"""Importing an app's `tools.py`: what stops it is a fault with its place, as in the tools file."""

from __future__ import annotations

import traceback
from importlib import import_module
from types import ModuleType

from ledger.tools.faults import Fault, InvalidTools


def imported(name: str) -> ModuleType:
    """The module `name`. Raises InvalidTools."""
    try:
        return import_module(name)
    except InvalidTools:
        raise
    except Exception as error:
        reason = " ".join(f"{type(error).__name__}: {error}".split())
        raise InvalidTools([Fault(_place(name, error), reason)]) from error


def _place(name: str, error: Exception) -> str:
    """The line that is no Python, or the one of the module at which its import stopped."""
    if isinstance(error, SyntaxError) and error.filename:
        return f"{error.filename}:{error.lineno}"
    reached = traceback.extract_tb(error.__traceback__)
    # Below the module are the packages that it uses; above it is the machinery of imports.
    own = [frame for frame in reached if frame.filename.endswith(f"{name.replace('.', '/')}.py")]
    return f"{own[-1].filename}:{own[-1].lineno}" if own else name
