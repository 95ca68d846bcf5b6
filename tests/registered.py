"""A tools file for one test: written, and read by this process alone."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ledger.tools.installed import registry


@contextmanager
def registered(settings: Any, folder: Path, text: str) -> Iterator[Path]:
    """The tools of this text are this process's for as long as the block lasts; the file."""
    file = folder / "tools.toml"
    file.write_text(text, encoding="utf-8")
    settings.SAGA_TOOLS = str(file)
    registry.cache_clear()
    try:
        yield file
    finally:
        registry.cache_clear()
