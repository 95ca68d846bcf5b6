"""The addresses that answers hold: of this console, under the name by which it was asked."""

from __future__ import annotations

from collections.abc import Callable

from django.http import HttpRequest

_ORIGIN = "_saga_origin"


def origin(request: HttpRequest) -> str:
    """`https://host` of a request. Raises DisallowedHost under a name that is none of ours.

    Looked at once a request: the host is checked against a pattern and a list each time that
    Django is asked for it, and every answer of the hot path holds an address.
    """
    found: str | None = getattr(request, _ORIGIN, None)
    if found is None:
        found = f"{request.scheme}://{request.get_host()}"
        setattr(request, _ORIGIN, found)
    return found


def absolute(request: HttpRequest) -> Callable[[str], str]:
    """What makes a path, encoded and with its leading slash, a whole address."""
    return origin(request).__add__
