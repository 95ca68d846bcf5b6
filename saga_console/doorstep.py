"""How often a password may be tried: at the login page, the admin's door and a step-up alike.

Counted by account and address together, by address, and by account, on the database's clock.
Whoever guesses shuts out themselves: an address from which the account came in lately is never
shut out by what others try. docs/decisions/0082-tries-are-counted-three-ways.md
"""

from __future__ import annotations

import hashlib
import unicodedata
from typing import Any

from django.contrib.auth.backends import ModelBackend
from django.core.exceptions import PermissionDenied
from django.db import transaction
from django.http import HttpRequest

from approvals.surface import address_of
from ledger import storage

WINDOW_S = 900
# Typing errors of one person at one desk.
OF_PAIR = 5
# One address guesses at many accounts; offices share an address, so it is not the same number.
OF_ADDRESS = 30
# Many addresses guess at one account.
OF_ACCOUNT = 50

_LOCK = "SELECT pg_advisory_xact_lock(hashtextextended(%s, 7240082))"
_TRY = """
INSERT INTO saga_console_logintry (account, address, is_good) VALUES (%s, %s, false) RETURNING id
"""
# The try that used up the limit, if there is one: when it leaves the window, another is free.
_SPENT = """
SELECT extract(epoch FROM at + %(window)s * interval '1 second' - clock_timestamp())::float8 AS wait
FROM saga_console_logintry
WHERE NOT is_good AND id < %(id)s AND at > clock_timestamp() - %(window)s * interval '1 second'
    AND {of}
ORDER BY id DESC OFFSET %(limit)s - 1 LIMIT 1
"""
_KNOWN = """
SELECT 1 AS one FROM saga_console_logintry
WHERE is_good AND account = %s AND address = %s LIMIT 1
"""
_FORGET = "DELETE FROM saga_console_logintry WHERE id = %s"
_GOOD = "UPDATE saga_console_logintry SET is_good = true WHERE id = %s"
_CLEAR = """
DELETE FROM saga_console_logintry WHERE account = %s AND address = %s AND id <> %s
"""
_SWEEP = """
DELETE FROM saga_console_logintry WHERE id IN (
    SELECT id FROM saga_console_logintry
    WHERE at < clock_timestamp() - interval '1 day'
        AND (NOT is_good OR at < clock_timestamp() - interval '30 days')
    ORDER BY at LIMIT 100)
"""
_RULES = (
    ("account = %(account)s AND address = %(address)s", OF_PAIR),
    ("address = %(address)s", OF_ADDRESS),
    ("account = %(account)s", OF_ACCOUNT),
)


class CountedBackend(ModelBackend):
    """Django's accounts and passwords, behind the count. A try too many looks at no password."""

    def authenticate(
        self,
        request: HttpRequest | None,
        username: str | None = None,
        password: str | None = None,
        **more: Any,
    ) -> Any:
        if request is None or not username:  # no door: a command, a shell
            return super().authenticate(request, username=username, password=password, **more)
        account, address = _account(username), address_of(request.META)
        tried, wait_s = _count(account, address)
        if wait_s:
            request.login_wait_s = wait_s  # type: ignore[attr-defined]
            raise PermissionDenied
        user = super().authenticate(request, username=username, password=password, **more)
        if user is not None:
            _welcome(tried, account, address)
        return user


def wait_of(request: HttpRequest) -> float:
    """For how many seconds this request's try came too early; 0 when it did not."""
    return float(getattr(request, "login_wait_s", 0.0))


@transaction.atomic
def _count(account: str, address: str) -> tuple[int, float]:
    """Note one try before it is looked at, so that tries side by side count, too.

    (its id, 0), or (0, seconds to wait) when it is one too many; then it is not kept, and
    going on knocking shuts nobody out for longer.
    """
    storage.execute(_LOCK, [account])
    storage.execute(_SWEEP, [])
    mine = storage.the_row(_TRY, [account, address]).id
    waits = [0.0]
    for of, limit in _RULES:
        if limit == OF_ACCOUNT and storage.row(_KNOWN, [account, address]):
            continue
        of_try = {"id": mine, "account": account, "address": address}
        spent = storage.row(_SPENT.format(of=of), of_try | {"window": WINDOW_S, "limit": limit})
        waits.append(spent.wait if spent else 0.0)
    if wait_s := max(waits):
        storage.execute(_FORGET, [mine])
        return 0, max(wait_s, 1.0)
    return mine, 0.0


@transaction.atomic
def _welcome(tried: int, account: str, address: str) -> None:
    storage.execute(_GOOD, [tried])
    storage.execute(_CLEAR, [account, address, tried])


def _account(username: str) -> str:
    folded = unicodedata.normalize("NFKC", username).strip().casefold()
    return hashlib.sha256(folded.encode("utf-8", "surrogatepass")).hexdigest()
