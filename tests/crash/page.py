"""The generated parts of docs/recovery.md, between their markers."""

from __future__ import annotations

from saga_console.home import BASE_DIR

PAGE = BASE_DIR / "docs" / "recovery.md"


def marks(name: str) -> tuple[str, str]:
    return f"<!-- {name}: made by `make {name}` -->", f"<!-- {name}: end -->"


def put(name: str, text: str) -> None:
    """Write a part of the page anew. Raises ValueError when its markers are not there."""
    page = PAGE.read_text(encoding="utf-8")
    begin, end = marks(name)
    before, found, rest = page.partition(begin)
    _, closed, after = rest.partition(end)
    if not (found and closed):
        raise ValueError(f"{PAGE} has no markers for {name}")
    PAGE.write_text(f"{before}{begin}\n\n{text}\n\n{end}{after}", encoding="utf-8")


def part(name: str) -> str:
    """What stands between the markers now."""
    begin, end = marks(name)
    return PAGE.read_text(encoding="utf-8").partition(begin)[2].partition(end)[0].strip()
