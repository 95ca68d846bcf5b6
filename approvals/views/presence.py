"""Whether the person is really there: when this session last gave the password, and from where."""

from __future__ import annotations

from datetime import datetime

from django.contrib.auth import authenticate
from django.http import HttpRequest

from approvals.services import entitling
from approvals.surface import Surface, address_of
from ledger import storage
from ledger.errors import RateLimited, SagaError

_CHECKED_AT = "password_checked_at"


def mark(request: HttpRequest) -> None:
    """The password was right just now, by the database's clock."""
    request.session[_CHECKED_AT] = _now().isoformat()


def checked_at(request: HttpRequest) -> datetime | None:
    told = request.session.get(_CHECKED_AT)
    return datetime.fromisoformat(told) if told else None


def surface(request: HttpRequest, *, bulk: bool = False) -> Surface:
    """This page as the services know it."""
    address = address_of(request.META)
    return Surface("page-bulk" if bulk else "page", address, checked_at(request))


def needs_password(request: HttpRequest, radius: str) -> bool:
    """Whether the page must ask for the password before it may decide on this."""
    return entitling.needs_password(radius, checked_at(request), _now())


def password_fault(refusal: SagaError | None) -> str:
    """What is wrong with the password that was given or was not, to be said at its field; or ''."""
    return refusal.detail if isinstance(refusal, entitling.StepUpNeeded) else ""


def step_up(request: HttpRequest) -> None:
    """Take the password of the form, if one was given. Raises StepUpNeeded, RateLimited."""
    password = request.POST.get("password", "")
    if not password:
        return  # whether one is needed is for the service to say
    name = request.user.get_username()
    found = authenticate(request, username=name, password=password)
    if found is not None and found.pk == request.user.pk:
        mark(request)
        return
    wait_s = getattr(request, "login_wait_s", 0)
    if wait_s:
        raise RateLimited(
            f"Too many passwords were tried. Try again in {-int(-wait_s // 60)} min; nothing was "
            "decided.",
            headers={"Retry-After": str(int(wait_s) + 1)},
        )
    raise entitling.StepUpNeeded("That is not your password; nothing was decided.", step_up=True)


def _now() -> datetime:
    now: datetime = storage.the_row("SELECT clock_timestamp() AS now", []).now
    return now
