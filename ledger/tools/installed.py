"""The registry of this Django process: each installed app's `tools.py` and SAGA_TOOLS."""

from __future__ import annotations

from functools import cache
from importlib import import_module

from django.apps import apps
from django.conf import settings
from django.utils.module_loading import module_has_submodule

from ledger.tools.registry import Registry, load


@cache
def registry() -> Registry:
    """Loaded on first use and kept: a process never changes its tools while it runs."""
    modules = [
        import_module(f"{app.name}.tools")
        for app in apps.get_app_configs()
        # This very package is ledger.tools, and holds none.
        if app.name != "ledger" and module_has_submodule(app.module, "tools")
    ]
    return load(getattr(settings, "SAGA_TOOLS", None), modules)
