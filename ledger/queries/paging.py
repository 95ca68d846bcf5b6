"""Keyset paging: a page starts after the last row of the one before, however long the table."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from ledger.errors import InvalidArgs

MAX_LIMIT = 100
DEFAULT_LIMIT = 50


def page(found: list[Any], limit: int, cursor_of: Any) -> dict[str, Any]:
    """`found` holds up to one row more than `limit`: that one says that there is a next page."""
    shown = found[:limit]
    more = len(found) > limit
    return {"items": shown, "next_cursor": str(cursor_of(shown[-1])) if more else None}


def uuid_cursor(text: str | None) -> UUID | None:
    """The row to start after. A cursor is what a page said, and nothing that can be made up."""
    if not text:
        return None
    try:
        return UUID(text)
    except ValueError:
        raise InvalidArgs(
            "The cursor is not one of ours: take next_cursor of the page before.",
            errors=[{"pointer": "/cursor", "detail": "Not a cursor."}],
        ) from None
