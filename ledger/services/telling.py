"""Notices, and the messages that they become: one a channel, written once.

A notice is written with the fact it tells of: by the database itself where the fact is a
state (ledger/messagewalls.py), by `tell` where it is not. Spreading it over the channels of
the day is the relay's work, so that no decision and no step ever waits for it.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from typing import Any
from uuid import UUID

from django.conf import settings
from django.urls import reverse

from ledger import keys, storage
from ledger.channels import Channel, channels
from ledger.letters import Content
from ledger.masking import redact
from ledger.models.fields import uuid7
from ledger.queries.documents import stamp
from ledger.services.tokens import OPERATING_GROUPS
from ledger.spoken import spoken
from ledger.states import SAGA_ENDED

# Notices that one round spreads: enough for a burst, few enough that it stays short.
BATCH = 100
# Channels of sagas' own webhooks: one an agent, so that one agent's dead receiver holds up
# no other's. A name in the channels file has no colon.
OF_AGENT = "agent:"
SAGA_KIND = "saga.%"

TELL = """
INSERT INTO ledger_notice (saga_id, about, kind, round, groups)
VALUES (%s, %s, %s, %s, '[]') ON CONFLICT DO NOTHING
"""
# What is told of a saga is read from its rows: where it has left, this waits until it is back.
TO_SPREAD = """
SELECT n.id FROM ledger_notice n WHERE n.spread_at IS NULL AND n.kind LIKE %s AND n.id > %s
    AND EXISTS (SELECT FROM ledger_saga g WHERE g.id = n.saga_id)
ORDER BY n.id LIMIT %s
"""
TAKE = """
SELECT id, saga_id, about, kind, round, at FROM ledger_notice
WHERE id = %s AND spread_at IS NULL FOR UPDATE SKIP LOCKED
"""
SPREAD = "UPDATE ledger_notice SET spread_at = clock_timestamp() WHERE id = %s"
WRITE = """
INSERT INTO ledger_message (id, notice_id, about, channel, form, recipients, content, state,
    tries, last_error)
SELECT r.id, r.notice, r.about, r.channel, r.form, r.recipients, r.content, 'waiting', 0, ''
FROM json_to_recordset(%s::json) AS r(id uuid, notice bigint, about uuid, channel text, form text,
    recipients jsonb, content jsonb)
ON CONFLICT DO NOTHING
"""
_SAGA = """
SELECT g.id, g.task_id, g.name, g.state, g.webhook, g.ended_backward_why, a.id AS agent_id,
    a.name AS agent,
    ARRAY(SELECT step_id FROM ledger_step WHERE saga_id = g.id AND residue ORDER BY position)
        AS residue
FROM ledger_saga g JOIN ledger_agent a ON a.id = g.agent_id WHERE g.id = %s
"""

Recipients = Callable[[Channel], Sequence[str]]


@storage.transition
def tell(saga_id: UUID, about: UUID, kind: str, *, round_no: int = 0) -> bool:
    """Leave a notice; joins the caller's transaction. False when it was told before."""
    return storage.execute(TELL, [saga_id, about, kind, round_no]) == 1


def spread_all(kinds: str, spread: Callable[[Any], None]) -> int:
    """Spread notices of these kinds (a LIKE pattern), each in its own transaction; how many.

    Those that cannot be spread are passed by, however many they are.
    """
    done, after = 0, 0
    while done < BATCH and (found := storage.rows(TO_SPREAD, [kinds, after, BATCH])):
        done += sum(storage.alone(partial(_spread_one, row.id, spread)) for row in found)
        after = found[-1].id
    return done


@storage.transition
def _spread_one(notice_id: int, spread: Callable[[Any], None]) -> bool:
    notice = storage.row(TAKE, [notice_id])
    if notice is None:
        return False
    spread(notice)
    storage.execute(SPREAD, [notice_id])
    return True


def write(
    notice: Any, content: Content, groups: Collection[str], recipients: Recipients
) -> list[str]:
    """One message for each channel that takes one of these groups; their names."""
    taking = [channel for channel in channels().values() if channel.takes(groups)]
    rows = [
        _row(notice, channel.name, channel.form, recipients(channel), content) for channel in taking
    ]
    _insert(rows)
    return [channel.name for channel in taking]


def _row(
    notice: Any, channel: str, form: str, recipients: Iterable[str], content: Content
) -> dict[str, Any]:
    return {
        "id": str(uuid7()),
        "notice": notice.id,
        "about": str(notice.about),
        "channel": channel,
        "form": form,
        "recipients": list(recipients),
        # The last look before it is kept: what is sent, and what pages show, is this.
        "content": json.loads(keys.storable_facts(redact(content.as_json()))),
    }


def _insert(rows: Sequence[Mapping[str, Any]]) -> None:
    if rows:
        storage.execute(WRITE, [json.dumps(rows, ensure_ascii=False, separators=(",", ":"))])


def page(path: str) -> str:
    """The address of a page as a message has it."""
    return settings.SAGA_URL.rstrip("/") + path


# -- sagas ------------------------------------------------------------------------------


def spread_sagas() -> int:
    """What became of sagas: to their own webhooks, and stuck ones to people on call."""
    return spread_all(SAGA_KIND, _spread_saga)


def _spread_saga(notice: Any) -> None:
    saga = storage.the_row(_SAGA, [notice.saga_id])
    content = _saga_content(notice, saga)
    if saga.webhook:
        host = saga.webhook.split("/")[2] if saga.webhook.count("/") > 1 else saga.webhook
        _insert([_row(notice, f"{OF_AGENT}{saga.agent}", "webhook", [host], content)])
    if notice.kind.removeprefix("saga.") not in SAGA_ENDED:
        write(notice, content, OPERATING_GROUPS, _everybody)


def _everybody(channel: Channel) -> Sequence[str]:
    return channel.to or [channel.where]


def _saga_content(notice: Any, saga: Any) -> Content:
    state = notice.kind.removeprefix("saga.")
    url = page(reverse("ledger:saga-detail", args=[saga.id]))
    facts = [("Agent", saga.agent), ("Saga", saga.name), ("Task", saga.task_id)]
    if saga.ended_backward_why:
        facts.append(("Turned back because", redact(spoken(saga.ended_backward_why).words)))
    return Content(
        type=notice.kind,
        at=stamp(notice.at) or "",
        title=f"{_title(state, saga.residue)}: {saga.name}",
        facts=facts,
        url=url,
        data={
            "saga_id": str(saga.id),
            "task_id": saga.task_id,
            "name": saga.name,
            "agent": saga.agent,
            "state": state,
            "residue": list(saga.residue) if state in SAGA_ENDED else [],
            "url": url,
        },
    )


def _title(state: str, residue: Sequence[str]) -> str:
    if state == "compensated" and residue:
        return "A saga ended backwards, and something is left or may be"
    return _SAGA_TITLE.get(state, state)


_SAGA_TITLE = {
    "stuck": "A saga is stuck and needs an operator",
    "completed": "A saga is completed",
    "compensated": "A saga was undone",
}


def signing_secret(agent_id: int) -> str:
    """The key (`whsec_…`) under which webhooks of this agent's sagas are signed.

    Derived from the console's SECRET_KEY, so that none is stored; a new SECRET_KEY makes new ones.
    """
    told = f"saga-webhook:{agent_id}".encode()
    key = hmac.digest(settings.SECRET_KEY.encode(), told, hashlib.sha256)
    return "whsec_" + base64.b64encode(key).decode()
