"""Bearer tokens: issue, revoke, and recognise. Only a token's SHA-256 is ever stored."""

from __future__ import annotations

import hashlib
import re
import secrets
from collections.abc import Sequence
from typing import Any

from django.contrib.auth import get_user_model
from django.contrib.auth.models import Group
from django.contrib.auth.password_validation import validate_password
from django.db import transaction

from ledger.bearer import Bearer
from ledger.errors import Forbidden, InvalidArgs, Unauthorized
from ledger.models import Agent, Token
from ledger.models.fields import ClockTimestamp
from ledger.statements import Statement
from ledger.storage import rows

GROUPS = ("viewers", "oncall", "approvers")
# Who may answer for an unknown step, retry, freeze. Viewers only look.
OPERATING_GROUPS = ("oncall", "approvers")
# 256 bits: a plain SHA-256 is enough, for there is nothing to guess.
TOKEN_BYTES = 32
# Names become part of `actor` lines and of URLs.
AGENT_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9 ._@:/+-]{0,99}")
TOOL_PATTERN = re.compile(r"[A-Za-z0-9._*?\[\]!-]{1,200}")
CHALLENGE = {"WWW-Authenticate": 'Bearer realm="saga-console"'}
REFUSED = {"WWW-Authenticate": 'Bearer realm="saga-console", error="invalid_token"'}

_FIND_AGENT = """
SELECT t.tools, a.id AS agent_id, a.name AS agent_name, NULL AS user_id, '' AS username
FROM ledger_token t JOIN ledger_agent a ON a.id = t.agent_id
WHERE t.digest = %s AND t.revoked_at IS NULL
"""
_FIND_PERSON = """
SELECT t.tools, NULL AS agent_id, '' AS agent_name, u.id AS user_id, u.{username} AS username
FROM ledger_token t JOIN {users} u ON u.id = t.user_id
WHERE t.digest = %s AND t.revoked_at IS NULL AND u.is_active
"""


def bearer(raw: str) -> Bearer:
    """Whose token this is. Raises Unauthorized; a revoked one stops working at once.

    One indexed read and no cache: a revocation that takes effect "soon" is not one. Where that
    read can travel with others, see ledger/services/proofs.py.
    """
    return found(rows(*finding(raw)))


def finding(raw: str) -> Statement:
    """The statement that finds a token's bearer. Raises Unauthorized for what can be none."""
    if not raw.startswith("saga_"):
        raise Unauthorized("This is not one of this console's tokens.", headers=REFUSED)
    return _find(of_agent=raw.startswith("saga_agent_")), [digest(raw)]


def found(owners: Sequence[Any]) -> Bearer:
    """The bearer in the rows of `finding`. Raises Unauthorized when there is none."""
    if not owners:
        raise Unauthorized(
            "The token is unknown or was revoked. Ask an operator for a new one.", headers=REFUSED
        )
    owner = owners[0]
    return Bearer(
        agent_id=owner.agent_id,
        agent_name=owner.agent_name,
        user_id=owner.user_id,
        username=owner.username,
        tools=tuple(owner.tools),
    )


def _find(*, of_agent: bool) -> str:
    """The statement that finds a token's bearer: `_fresh` writes on a token whose it is."""
    if of_agent:
        return _FIND_AGENT
    user = get_user_model()
    table = user._meta.db_table  # noqa: SLF001 - documented API in spite of its name
    return _FIND_PERSON.format(users=table, username=user.USERNAME_FIELD)


def can_operate(caller: Bearer) -> bool:
    """Whether this caller may resolve, retry and freeze. Never an agent."""
    if caller.user_id is None:
        return False
    people: Any = get_user_model().objects.filter(pk=caller.user_id, is_active=True)
    return bool(
        people.filter(groups__name__in=OPERATING_GROUPS).exists()
        or people.filter(is_superuser=True).exists()
    )


def require_operator(caller: Bearer) -> None:
    """Raises Forbidden with the reason unless the caller may operate."""
    if caller.is_agent:
        raise Forbidden("An agent's token can never operate. A person must do this.")
    if not can_operate(caller):
        groups = " or ".join(OPERATING_GROUPS)
        raise Forbidden(f"{caller.username} may only look; this needs the group {groups}.")


@transaction.atomic
def issue_agent_token(
    name: str, *, tools: Sequence[str] = (), owner: str | None = None, renew: bool = False
) -> str:
    """A further token for the agent `name`, which is registered when it is new.

    `tools` are fnmatch patterns, none meaning every tool; or, with `renew`, what the tokens before
    were good for. `owner` is the username of the person who answers for the agent and so may never
    decide on it. `renew` revokes all that the agent has had. Returns the token: the only time
    that it can be seen. Raises InvalidArgs, also when the tokens to renew differ in their tools.
    """
    if AGENT_NAME.fullmatch(name) is None:
        raise InvalidArgs("An agent's name is 1 to 100 letters, digits, blanks or ._@:/+-")
    for pattern in tools:
        if TOOL_PATTERN.fullmatch(pattern) is None:
            raise InvalidArgs(f"{pattern!r} is not a pattern of tool names, such as payments.*")
    Agent.objects.get_or_create(name=name)
    agent = _alone(Agent.objects, name=name)
    if owner is not None:
        agent.owner = _person(owner)
        agent.save(update_fields=["owner"])
    if renew:
        tools = tools or _tools_before(agent)
        revoke_agent_tokens(name)
    raw = _fresh("agent")
    Token.objects.create(digest=digest(raw), agent=agent, tools=list(tools))
    return raw


def _alone(rows: Any, **which: Any) -> Any:
    """The row of a bearer, locked: else two renewals at once each miss the other's token.

    Not against the sagas that are opened meanwhile, which only need the row to stay.
    """
    return rows.select_for_update(no_key=True).get(**which)


def _tools_before(agent: Agent) -> Sequence[str]:
    """What the live tokens are good for, or the last one when all were revoked."""
    had = Token.objects.filter(agent=agent).order_by("-created_at", "-id")
    before = list(had.filter(revoked_at__isnull=True)) or list(had[:1])
    if len({frozenset(token.tools) for token in before}) > 1:
        raise InvalidArgs(
            f"The tokens of {agent.name} differ in their tools. Name those of the new one with "
            "--tools ('*' for every tool)."
        )
    return before[0].tools if before else ()


def revoke_agent_tokens(name: str) -> int:
    """Revoke every token of the agent; how many there were. The agent's past stays."""
    return _revoke(agent__name=name)


def _revoke(**whose: Any) -> int:
    live = Token.objects.filter(**whose, revoked_at__isnull=True)
    return live.update(revoked_at=ClockTimestamp())


@transaction.atomic
def seat_operator(username: str, *, group: str, password: str | None = None) -> Any:
    """The person `username`, in exactly the one of `GROUPS` named, made when new.

    Other groups are left alone. Without a password a new person can use tokens but not
    the pages. Raises django's ValidationError for a password that its validators refuse.
    """
    if group not in GROUPS:
        raise InvalidArgs(f"The group is one of {', '.join(GROUPS)}, not {group!r}.")
    users: Any = get_user_model().objects
    person, created = users.get_or_create(username=username)
    if password is not None:
        validate_password(password, person)
        person.set_password(password)
        person.save()
    elif created:
        person.set_unusable_password()
        person.save()
    groups = {name: Group.objects.get_or_create(name=name)[0] for name in GROUPS}
    person.groups.remove(*(found for name, found in groups.items() if name != group))
    person.groups.add(groups[group])
    return person


@transaction.atomic
def issue_operator_token(user: Any, *, renew: bool = False) -> str:
    """A further token for a person; `renew` revokes all before. The only time that it is seen."""
    _alone(get_user_model().objects, pk=user.pk)
    if renew:
        _revoke(user=user)
    raw = _fresh("operator")
    Token.objects.create(digest=digest(raw), user=user)
    return raw


def _fresh(kind: str) -> str:
    # The prefix lets secret scanners and people recognise a leaked token.
    return f"saga_{kind}_{secrets.token_urlsafe(TOKEN_BYTES)}"


def digest(raw: str) -> str:
    """What is stored of a token."""
    return hashlib.sha256(raw.encode("utf-8", "surrogatepass")).hexdigest()


def _person(username: str) -> Any:
    found = get_user_model().objects.filter(username=username).first()
    if found is None:
        raise InvalidArgs(f"There is no person {username!r}; make one with manage.py operator.")
    return found
