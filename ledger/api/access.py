"""Who is calling, and whether such a caller may be here at all."""

from __future__ import annotations

from uuid import UUID

from django.http import HttpRequest
from ninja.security import HttpBearer

from ledger.bearer import Bearer
from ledger.errors import Forbidden, NotFound, Unauthorized
from ledger.services import tokens


class TokenAuth(HttpBearer):
    """`Authorization: Bearer <token>`; the caller is then `request.auth`."""

    def __call__(self, request: HttpRequest) -> Bearer:
        scheme, _, raw = request.META.get("HTTP_AUTHORIZATION", "").partition(" ")
        if scheme.lower() != "bearer" or not raw.strip():
            raise Unauthorized(
                "Send your token as `Authorization: Bearer saga_…`.", headers=tokens.CHALLENGE
            )
        return self.authenticate(request, raw.strip())

    def authenticate(self, request: HttpRequest, token: str) -> Bearer:
        return tokens.bearer(token)


def caller(request: HttpRequest) -> Bearer:
    """The owner of the token."""
    bearer: Bearer = request.auth  # type: ignore[attr-defined]
    return bearer


def agent(request: HttpRequest) -> Bearer:
    """The caller, who must be an agent."""
    bearer = caller(request)
    if not bearer.is_agent:
        raise Forbidden("Only an agent proposes: use a token from `manage.py agent_token`.")
    return bearer


def operator(request: HttpRequest) -> Bearer:
    """The caller, who must be a person with the right to operate."""
    bearer = caller(request)
    tokens.require_operator(bearer)
    return bearer


def owned(text: str, noun: str) -> UUID:
    """The id in a path. What is no id cannot name anything."""
    try:
        return UUID(text)
    except ValueError:
        raise nothing(noun) from None


def nothing(noun: str) -> NotFound:
    """Said alike for what does not exist and for what belongs to another agent."""
    return NotFound(f"There is no such {noun}, or it is not yours.")
