"""Who is calling, and whether such a caller may be here at all."""

from __future__ import annotations

from uuid import UUID

from django.http import HttpRequest
from ninja.security import HttpBearer

from ledger.bearer import Bearer
from ledger.errors import Forbidden, NotFound, Unauthorized
from ledger.services import tokens
from ledger.services.proofs import Proof

_PROOF = "_saga_proof"


class TokenAuth(HttpBearer):
    """`Authorization: Bearer <token>`; the caller is then `request.auth`.

    With `proves_later` the operation itself looks the token up, in a `with proof(request)`.
    """

    def __init__(self, *, proves_later: bool = False) -> None:
        super().__init__()
        self._proves_later = proves_later

    def __call__(self, request: HttpRequest) -> Bearer:
        scheme, _, raw = request.META.get("HTTP_AUTHORIZATION", "").partition(" ")
        if scheme.lower() != "bearer" or not raw.strip():
            raise Unauthorized(
                "Send your token as `Authorization: Bearer saga_…`.", headers=tokens.CHALLENGE
            )
        return self.authenticate(request, raw.strip())

    def authenticate(self, request: HttpRequest, token: str) -> Bearer:
        if not self._proves_later:
            return tokens.bearer(token)
        proof = Proof(token)
        setattr(request, _PROOF, proof)
        return proof.bearer


def proof(request: HttpRequest) -> Proof:
    """That of an operation under `TokenAuth(proves_later=True)`."""
    found: Proof = getattr(request, _PROOF)
    return found


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
