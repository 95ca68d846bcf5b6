from __future__ import annotations

from django.http import HttpRequest

from approvals import rights
from approvals.rights import Person
from ledger.views.people import bearer_of


def person_of(request: HttpRequest) -> Person:
    """Who is looking, with the groups that they are in now: read once a request."""
    person: Person | None = getattr(request, "person", None)
    if person is None:
        person = rights.who(bearer_of(request))
        request.person = person  # type: ignore[attr-defined]
    return person
