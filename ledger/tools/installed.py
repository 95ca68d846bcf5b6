"""The registry of this Django process: each installed app's `tools.py` and SAGA_TOOLS."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

from django.apps import apps
from django.conf import settings
from django.utils.module_loading import module_has_submodule

from ledger.states import Direction
from ledger.tools.faults import InvalidTools
from ledger.tools.modules import imported
from ledger.tools.registry import Registry, directions_of, load


def recorded_directions(
    tool: str, digest: str, definition: Mapping[str, Any] | None
) -> frozenset[Direction] | None:
    """What a tool was able to do under this digest; None when nobody knows.

    Its snapshot says so, whether this process has the code or not: that it has not tells nothing.
    """
    told = directions_of(definition or {})
    if told is None and tool in registry() and registry().get(tool).digest == digest:
        told = registry().get(tool).target.directions
    return told


@cache
def registry() -> Registry:
    """Loaded once and kept: a process never changes its tools while it runs."""
    modules = [
        imported(f"{app.name}.tools")
        for app in apps.get_app_configs()
        # This very package is ledger.tools, and holds none.
        if app.name != "ledger" and module_has_submodule(app.module, "tools")
    ]
    return load(getattr(settings, "SAGA_TOOLS", None), modules)


class CannotRun(SystemExit):
    """The tools cannot be used as they are written. A line for each fault; nothing starts."""


def required() -> Registry:
    """The registry, for whoever is nothing without it: web, relay and workers load it first.

    Commands that only read or mend the ledger do without, and work beside a wrong file.
    """
    try:
        return registry()
    except InvalidTools as error:
        raise CannotRun(f"SAGA_TOOLS or a tools.py: nothing starts with this\n{error}") from None
