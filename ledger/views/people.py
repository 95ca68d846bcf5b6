"""Who is asking, in the engine's words, and what this person may press."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, Concatenate, ParamSpec

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, resolve_url
from django.utils.http import url_has_allowed_host_and_scheme
from django.views.decorators.http import require_POST

from ledger.bearer import Bearer
from ledger.errors import SagaError
from ledger.services import tokens
from ledger.templatetags.refused import keep_typed, told

P = ParamSpec("P")
View = Callable[..., HttpResponse]
Act = Callable[Concatenate[HttpRequest, P], str]


def bearer_of(request: HttpRequest) -> Bearer:
    """The signed-in person as the services know callers."""
    user: Any = request.user
    return Bearer(user_id=user.pk, username=user.get_username())


def right_to_operate(request: HttpRequest) -> dict[str, Any]:
    """`can_operate` and, when not, the sentence why."""
    if tokens.can_operate(bearer_of(request)):
        return {"can_operate": True, "why_not": ""}
    groups = " or ".join(tokens.OPERATING_GROUPS)
    return {"can_operate": False, "why_not": f"You may look; pressing needs the group {groups}."}


def back_to(request: HttpRequest, fallback: str, part: str = "") -> HttpResponse:
    """Redirect to the page whose form was sent, when it is one of ours; there to `part`."""
    wish = request.POST.get("next", "")
    is_ours = url_has_allowed_host_and_scheme(
        wish, allowed_hosts={request.get_host()}, require_https=request.is_secure()
    )
    place = resolve_url(wish if is_ours else fallback)
    return redirect(f"{place}#{part}" if part else place)


def pressed(fallback: str) -> Callable[[Act[P]], View]:
    """Make a page of one button's act: check the right, say what came of it, and go back.

    The act returns its sentence of success, or '' where the page itself tells. A refusal of the
    services is shown in its own words, and nothing was changed then: what was typed is in the
    form again.
    """

    def decorate(act: Act[P]) -> View:
        @wraps(act)
        def guarded(request: HttpRequest, *args: P.args, **kwargs: P.kwargs) -> HttpResponse:
            try:
                tokens.require_operator(bearer_of(request))
                if done := act(request, *args, **kwargs):
                    messages.success(request, done)
            except SagaError as error:
                about = request.POST.get("about", "")
                messages.error(request, f"{about}: {told(error)}" if about else told(error))
                return back_to(request, fallback, keep_typed(request, error))
            return back_to(request, fallback)

        return require_POST(guarded)

    return decorate
