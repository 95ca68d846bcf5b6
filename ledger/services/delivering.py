"""Taking messages to send, and recording what came of each try.

As in the engine: taken in one statement that skips what others hold, under a lease and a
token that every later write must show; all times are the database's.
"""

from __future__ import annotations

import random
from collections.abc import Collection
from typing import Any
from uuid import UUID, uuid4

from ledger import storage
from ledger.errors import AlreadyDecided, NotFound

# Seconds until each next try: eight tries over five hours. A receiver that is down for a
# night is found on the page of what needs a person, and tried again with one press.
WAITS_S = (5.0, 30.0, 120.0, 600.0, 1800.0, 3600.0, 10800.0)
MOST_TRIES = len(WAITS_S) + 1
# Renewed every second while its sender lives; one that is not heard of for so long is gone.
LEASE_S = 30.0
# A receiver may ask for patience, but not keep a message from being seen as undelivered.
MOST_PATIENCE_S = 3600.0
_SPREAD = 0.2
_MOST_ERROR = 1000
_DICE = random.Random()  # noqa: S311 - spreading, not a secret

_FREE = (
    "state = 'waiting' AND due_at <= clock_timestamp() "
    "AND (lease_until IS NULL OR lease_until < clock_timestamp())"
)
DUE = f"SELECT DISTINCT channel FROM ledger_message WHERE {_FREE} AND channel <> ALL(%s)"  # noqa: S608
# What follows up never overtakes what it follows: receivers read them in their order.
CLAIM = f"""
WITH due AS (
    SELECT m.id FROM ledger_message m WHERE m.channel = %s AND {_FREE} AND NOT EXISTS (
        SELECT 1 FROM ledger_message e WHERE e.about = m.about AND e.channel = m.channel
            AND e.notice_id < m.notice_id AND e.state = 'waiting')
    ORDER BY m.due_at LIMIT %s FOR UPDATE OF m SKIP LOCKED
)
UPDATE ledger_message m SET token = %s, tries = tries + 1,
    lease_until = clock_timestamp() + %s * interval '1 second'
FROM due WHERE m.id = due.id
RETURNING m.id, m.about, m.channel, m.form, m.recipients, m.content, m.tries, m.token, m.notice_id,
    (SELECT f.id FROM ledger_message f WHERE f.about = m.about AND f.channel = m.channel
        AND f.notice_id < m.notice_id ORDER BY f.notice_id LIMIT 1) AS follows
"""  # noqa: S608
DELIVERED = """
UPDATE ledger_message SET state = 'delivered', delivered_at = clock_timestamp(), lease_until = NULL,
    token = NULL, last_error = ''
WHERE id = %s AND token = %s AND state = 'waiting'
"""
FAILED = """
UPDATE ledger_message SET state = %s, lease_until = NULL, token = NULL, last_error = %s,
    due_at = clock_timestamp() + %s * interval '1 second'
WHERE id = %s AND token = %s AND state = 'waiting'
"""
RENEW = """
UPDATE ledger_message SET lease_until = clock_timestamp() + %s * interval '1 second'
WHERE token = ANY(%s) AND state = 'waiting'
"""
# A sender that died with the last try never said so.
GIVE_UP = f"""
UPDATE ledger_message SET state = 'undelivered', lease_until = NULL, token = NULL,
    last_error = 'its sender ended in the middle of the last try'
WHERE {_FREE} AND tries >= %s
"""  # noqa: S608
AGAIN = """
UPDATE ledger_message SET state = 'waiting', tries = 0, due_at = clock_timestamp()
WHERE id = %s AND state = 'undelivered'
"""


def due_channels(full: Collection[str]) -> list[str]:
    """Channels that have something to send now, but for those that are full here."""
    return [row.channel for row in storage.rows(DUE, [list(full)])]


@storage.transition
def claim(channel: str, most: int) -> list[Any]:
    """Take up to `most` messages of a channel for one try each."""
    return storage.rows(CLAIM, [channel, most, uuid4(), LEASE_S])


def renew(tokens: Collection[UUID]) -> None:
    """Keep what is being sent: its sender lives."""
    if tokens:
        storage.execute(RENEW, [LEASE_S, list(tokens)])


def delivered(message: UUID, token: UUID) -> bool:
    """Record that its receiver took it. False when the lease had gone to another."""
    return storage.execute(DELIVERED, [message, token]) == 1


def failed(
    message: UUID,
    token: UUID,
    tries: int,
    why: str,
    *,
    again: bool,
    retry_after_s: float | None = None,
) -> bool:
    """Record a try that came to nothing: another later, or undelivered when they are used up."""
    is_over = not again or tries >= MOST_TRIES
    wait = 0.0
    if not is_over:
        wait = WAITS_S[tries - 1] * _DICE.uniform(1 - _SPREAD, 1 + _SPREAD)
        wait = max(wait, min(retry_after_s or 0.0, MOST_PATIENCE_S))
    state = "undelivered" if is_over else "waiting"
    return storage.execute(FAILED, [state, why[:_MOST_ERROR], wait, message, token]) == 1


def give_up_lost() -> int:
    """End what a sender left behind with its last try."""
    return storage.execute(GIVE_UP, [MOST_TRIES])


def try_again(message: UUID) -> None:
    """Send an undelivered message once more, from its first try on. Raises NotFound.

    AlreadyDecided when it is not undelivered: somebody pressed first, and it is on its way.
    """
    if storage.execute(AGAIN, [message]):
        return
    found = storage.row("SELECT state FROM ledger_message WHERE id = %s", [message])
    if found is None:
        raise NotFound(f"There is no message {message}.")
    raise AlreadyDecided(
        f"The message is {found.state}; nothing had to be done.", state=found.state
    )
