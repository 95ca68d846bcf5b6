"""Sends what is due, beside the relay's own loop: a slow receiver holds up nothing but itself.

One thread talks to the database; others call out and touch no database at all. A channel has
`LANES` of them at most, so a receiver that hangs leaves the rest to the others.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from django.conf import settings
from django.db import InterfaceError, OperationalError, connection

from ledger import storage, webhosts
from ledger.channels import channels
from ledger.letters import Content
from ledger.sending import Envelope, NotSent, Sent, deliver
from ledger.services import delivering, telling

logger = logging.getLogger(__name__)

# People wait minutes for a mail: a second is soon enough, and an idle look costs one read.
POLL_S = 1.0
WHILE_SENDING_S = 0.05
RENEW_EVERY_S = 1.0
# Side by side to one receiver, to all of them, and of those to addresses that agents named.
LANES = 2
THREADS = 16
LANES_OF_AGENTS = 8
# A try that takes longer is given up: its lease ends, and whoever is next tries again.
LONGEST_S = 120.0

_WEBHOOK = """
SELECT g.webhook, g.agent_id FROM ledger_notice n JOIN ledger_saga g ON g.id = n.saga_id
WHERE n.id = %s
"""


@dataclass(slots=True)
class _Try:
    message: Any
    began: float
    outcome: Future[Sent | NotSent]


class Postman:
    """What one relay is sending. Nothing that the database does not know as well."""

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(THREADS, thread_name_prefix="message")
        self._tries: list[_Try] = []
        self._next_renewal = 0.0

    def run(self, is_stopping: threading.Event) -> None:
        """Send until told to stop. What is in the air then is sent again by the next."""
        while not is_stopping.is_set():
            try:
                self.turn()
                is_stopping.wait(WHILE_SENDING_S if self._tries else POLL_S)
            except (OperationalError, InterfaceError, OSError) as error:
                logger.warning("messages wait, the database did not answer (%s)", error)
                connection.close()
                is_stopping.wait(POLL_S)
            except Exception:
                logger.exception("messages wait: a turn failed")
                connection.close()
                is_stopping.wait(POLL_S)
        self._pool.shutdown(wait=False, cancel_futures=True)
        connection.close()

    def turn(self) -> int:
        """Record what came back, keep what is in the air, take what is due; how many were taken."""
        self._record()
        self._renew()
        delivering.give_up_lost()
        taken = 0
        for channel in delivering.due_channels(self._full()):
            room = self._room(channel)
            for message in delivering.claim(channel, room) if room else ():
                self._start(message)
                taken += 1
        return taken

    def drain(self, within_s: float = 30.0) -> None:
        """Turn until nothing is due and nothing in the air, for `manage.py` and for tests."""
        deadline = time.monotonic() + within_s
        while self.turn() or self._tries:
            if time.monotonic() > deadline:
                raise TimeoutError(f"{len(self._tries)} messages are still in the air")
            time.sleep(WHILE_SENDING_S)

    def _start(self, message: Any) -> None:
        try:
            found = envelope(message)
        except (OperationalError, InterfaceError):
            raise
        except Exception as error:  # one bad message stops no other
            logger.exception("message %s cannot be put together", message.id)
            found = NotSent(f"it cannot be put together ({type(error).__name__})")
        if isinstance(found, NotSent):
            future: Future[Sent | NotSent] = Future()
            future.set_result(found)
        else:
            future = self._pool.submit(deliver, found)
        self._tries.append(_Try(message, time.monotonic(), future))

    def _record(self) -> None:
        for one in [one for one in self._tries if one.outcome.done()]:
            _write(one.message, one.outcome.result())
            self._tries.remove(one)

    def _renew(self) -> None:
        now = time.monotonic()
        if now < self._next_renewal:
            return
        self._next_renewal = now + RENEW_EVERY_S
        held = [one for one in self._tries if now - one.began < LONGEST_S]
        delivering.renew([one.message.token for one in held])

    def _load(self) -> Counter[str]:
        return Counter(one.message.channel for one in self._tries)

    def _full(self) -> list[str]:
        return [channel for channel, count in self._load().items() if count >= LANES]

    def _room(self, channel: str) -> int:
        load = self._load()
        room = min(LANES - load[channel], THREADS - load.total())
        if channel.startswith(telling.OF_AGENT):
            agents = sum(n for name, n in load.items() if name.startswith(telling.OF_AGENT))
            room = min(room, LANES_OF_AGENTS - agents)
        return max(room, 0)


def _write(message: Any, outcome: Sent | NotSent) -> None:
    if isinstance(outcome, Sent):
        delivering.delivered(message.id, message.token)
        return
    logger.warning("message %s to %s: %s", message.id, message.channel, outcome.why)
    delivering.failed(
        message.id,
        message.token,
        message.tries,
        outcome.why,
        again=outcome.again,
        retry_after_s=outcome.retry_after_s,
    )


def envelope(message: Any) -> Envelope | NotSent:
    """Where a claimed message goes; NotSent when there is no way to send it now."""
    told: dict[str, Any] = {
        "id": f"msg_{message.id.hex}",
        "form": message.form,
        "content": Content.of(message.content),
        "recipients": message.recipients,
        "answers": f"msg_{message.follows.hex}" if message.follows else "",
    }
    if message.channel.startswith(telling.OF_AGENT):
        saga = storage.the_row(_WEBHOOK, [message.notice_id])
        secret = telling.signing_secret(saga.agent_id)
        allowed = webhosts.hosts(settings.SAGA_WEBHOOK_HOSTS)
        return Envelope(**told, url=saga.webhook, secret=secret, allowed=allowed)
    channel = channels().get(message.channel)
    if channel is None or channel.form != message.form:
        return NotSent(f"no channel {message.channel} of this form is configured here")
    if message.form == "mail" and not message.recipients:
        return NotSent("nobody of its groups has an address", again=False)
    return Envelope(**told, url=channel.url, secret=channel.secret)
