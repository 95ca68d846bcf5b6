from __future__ import annotations

from collections.abc import Callable

from django.http import HttpRequest

from approvals import rights
from approvals.models import Approval
from ledger.views.people import bearer_of


def judge_for(request: HttpRequest) -> Callable[[Approval], tuple[bool, str]]:
    """The one rule of who may decide, for the person who is looking; their groups are read once."""
    person = rights.who(bearer_of(request))
    return lambda approval: rights.can_decide(person, approval)
