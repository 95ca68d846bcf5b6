"""What targets say, byte by byte, and what is kept of it; which key they see, try after try."""

from __future__ import annotations

import json
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from django.db import connection

from ledger.keys import canonical, downstream_key
from ledger.models import Attempt, Entry, IdempotencyRecord, Saga, Step
from ledger.outcomes import Failed, Outcome, Sighting, StillUnknown, Unknown
from ledger.services.recording import MAX_REASON_CHARS, Finished
from ledger.services.verifying import verify
from tests.apicast import Caller
from tests.registered import registered
from tests.shop import Shop, work
from tests.sockets import SocketTarget, says, says_json

pytestmark = pytest.mark.django_db(transaction=True)

# One tool that undoes nothing, has no effect key, and can be looked up.
NOTES = """
[tools."notes.add"]
version = "1"
tier = "pivot"
blast_radius = "low"
timeout_s = 5
retries = 3
settle_s = 0.1
[tools."notes.add".args]
type = "object"
properties.id.type = "string"
[tools."notes.add".execute]
method = "POST"
url = "{url}/do"
[tools."notes.add".probe]
method = "GET"
url = "{url}/look"
"""
OK = says_json("200 OK", b'{"id":"note_1"}')
BUSY = says("503 Service Unavailable", b"busy", Retry_After="0")
ABSENT = says("404 Not Found")


@pytest.fixture
def quick(settings: Any) -> None:
    """Short times for shifts and looks."""
    settings.SAGA_SHIFT_LINGER_S = 0.05
    settings.SAGA_PROBE_APART_S = 0.1


@contextmanager
def notes_at(settings: Any, folder: Path, url: str) -> Iterator[None]:
    with registered(settings, folder, NOTES.replace("{url}", url)):
        yield


class Notes(SocketTarget):
    """Answers each POST with the next of its answers (the last for ever), each GET with 404."""

    def __init__(self, *answers: Callable[[socket.socket], None]) -> None:
        self.posted = 0
        self.answers = answers
        super().__init__(self.speak)

    def speak(self, connection: socket.socket) -> None:
        if self.requests[-1].startswith(b"GET"):
            ABSENT(connection)
            return
        self.posted += 1
        self.answers[min(self.posted, len(self.answers)) - 1](connection)

    def keys(self) -> list[str]:
        """The Idempotency-Key of each POST, in order."""
        heads = [r.split(b"\r\n\r\n")[0].decode() for r in self.requests if r.startswith(b"POST")]
        lines = [line.partition(": ") for head in heads for line in head.split("\r\n")]
        return [value for name, _, value in lines if name.lower() == "idempotency-key"]


@contextmanager
def told_by(
    settings: Any, folder: Path, *answers: Callable[[socket.socket], None]
) -> Iterator[Notes]:
    notes = Notes(*answers)
    try:
        with notes_at(settings, folder, notes.url):
            yield notes
    finally:
        notes.close()


def until(state: str) -> Step:
    """Work until the one step of this test is in a state; the step."""
    work(lambda: Step.objects.get().state == state)
    return Step.objects.get()


ODD_BODIES = {
    "an escaped NUL": (b'{"id":"a\\u0000b"}', {"id": "a\\u0000b"}),
    "NUL in a key": (b'{"\\u0000":1}', {"\\u0000": 1}),
    "a lone surrogate": (b'{"id":"\\ud800"}', {"id": "\\ud800"}),
    "NaN": (b'{"amount":NaN}', {"amount": "NaN"}),
    "a number without end": (b'{"amount":1e400}', {"amount": "Infinity"}),
}


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("name", ODD_BODIES)
def test_an_answer_that_postgres_cannot_hold_still_commits_the_fact(
    agent: Caller, settings: Any, tmp_path: Path, name: str
) -> None:
    """Case C93: jsonb refuses NUL, so it is made visible; the effect is never forgotten."""
    body, kept = ODD_BODIES[name]
    with told_by(settings, tmp_path, says_json("200 OK", body)) as notes:
        saga = agent.open()
        agent.propose(saga)
        step = until("committed")
        again = agent.propose(saga)
        assert notes.posted == 1
    assert json.loads(step.result_text) == kept
    assert (again.status_code, again.json()["result"]) == (200, kept)
    assert json.loads(Entry.objects.get(kind="step.committed").payload)["result"] == kept
    assert IdempotencyRecord.objects.get().state == "executed"
    assert list(verify()) == []


@pytest.mark.usefixtures("quick")
def test_a_raw_nul_in_a_text_answer_still_commits_the_fact(
    agent: Caller, settings: Any, tmp_path: Path
) -> None:
    """Case C93: bytes that are no JSON and no UTF-8 at all."""
    raw = says("200 OK", b"ok\x00\xff", Content_Type="text/plain")
    with told_by(settings, tmp_path, raw):
        agent.propose(agent.open())
        step = until("committed")
    assert json.loads(step.result_text) == {"status": 200, "text": "ok\\u0000\ufffd"}


@pytest.mark.usefixtures("quick")
def test_a_refusal_with_nul_in_its_reason_is_recorded_as_a_refusal(
    agent: Caller, settings: Any, tmp_path: Path
) -> None:
    """Case C93: an error of the target goes into jsonb too."""
    refusal = says("422 Unprocessable Content", b"bad\x00id", Content_Type="text/plain")
    with told_by(settings, tmp_path, refusal):
        agent.propose(agent.open())
        step = until("failed")
    assert step.error["detail"] == "422 bad\\u0000id"
    assert "bad\\u0000id" in Saga.objects.get().ended_backward_why
    assert list(verify()) == []


def odd_words(outcome: Outcome | Sighting) -> str:
    """What is kept of an outcome's words."""
    kept = Finished(None, outcome).outcome
    return kept.error if isinstance(kept, Failed) else kept.reason


@pytest.mark.parametrize("outcome", [Failed, Unknown, StillUnknown])
def test_no_word_of_a_target_can_undo_the_writing_of_a_batch(
    outcome: Callable[[str], Outcome | Sighting],
) -> None:
    """Case C93: NUL and half pairs become visible, endless words are cut with a mark."""
    assert odd_words(outcome("a\x00b\ud800")) == "a\\u0000b\\ud800"
    assert odd_words(outcome("as it is: \u00e9\n")) == "as it is: \u00e9\n"
    assert len(odd_words(outcome("x" * 10**6))) <= MAX_REASON_CHARS
    assert "characters were cut" in odd_words(outcome("x" * 10**6))


def test_a_target_that_is_away_is_no_outcome_and_poisons_no_key(shop: Shop) -> None:
    """Case C94: nothing was executed, so nothing is stored as an answer; later it succeeds."""
    shop.wire.stop()
    saga = shop.open()
    wanted = {"args": {"email": "away@example.com"}}
    shop.propose(saga, "one", "crm.customer", **wanted)
    work(Attempt.objects.exists)
    step = Step.objects.get()
    assert (step.state, step.result_text) == ("queued", None)
    assert IdempotencyRecord.objects.get().state == "failed"
    assert shop.propose(saga, "one", "crm.customer", **wanted).kind == "in_flight"
    shop.wire.start()
    step = until("committed")
    assert shop.is_there(json.loads(step.result_text)["id"])
    assert shop.propose(saga, "one", "crm.customer", **wanted).kind == "replayed"
    assert IdempotencyRecord.objects.get().state == "executed"


@pytest.mark.usefixtures("quick")
def test_a_business_refusal_is_an_outcome_and_is_stored(
    agent: Caller, settings: Any, tmp_path: Path
) -> None:
    """Case C94, the other half: asked again, the refusal is answered and not tried again."""
    refusal = says_json("402 Payment Required", b'{"code":"card_declined"}')
    with told_by(settings, tmp_path, refusal, OK) as notes:
        saga = agent.open()
        agent.propose(saga)
        until("failed")
        again = agent.propose(saga)
        assert notes.posted == 1
    assert (again.status_code, again.json()["state"]) == (200, "failed")
    assert "card_declined" in again.json()["error"]["detail"]
    assert again.headers["Idempotent-Replayed"] == "true"


@pytest.mark.usefixtures("quick")
def test_every_try_shows_the_target_one_key_that_was_stored_before_the_call(
    agent: Caller, settings: Any, tmp_path: Path
) -> None:
    """Case H9: made from saga, step, tool and args, so that a retry cannot mint another."""
    stored: list[tuple[str, str]] = []

    def look_first(then: Callable[[socket.socket], None]) -> Callable[[socket.socket], None]:
        def answer(to: socket.socket) -> None:
            record = IdempotencyRecord.objects.get()
            stored.append((record.key, record.state))
            connection.close()
            then(to)

        return answer

    with told_by(settings, tmp_path, *map(look_first, (BUSY, BUSY, OK))) as notes:
        saga = agent.open()
        agent.propose(saga)
        step = until("committed")
        shown = notes.keys()
    args = canonical({"id": "a"})
    assert step.idempotency_key == downstream_key(saga, "s1", "notes.add", args)
    assert shown == [step.idempotency_key] * 3
    assert stored == [(step.idempotency_key, "pending")] * 3
    assert set(Attempt.objects.values_list("idempotency_key", flat=True)) == set(shown)


@pytest.mark.usefixtures("quick")
def test_a_run_after_a_doubt_shows_the_same_key_as_the_run_in_doubt(
    agent: Caller, settings: Any, tmp_path: Path
) -> None:
    """Case H9: a 500 leaves a doubt; looked up twice and not there, it is run with its old key."""
    with told_by(settings, tmp_path, says("500 Internal Server Error"), OK) as notes:
        agent.propose(agent.open())
        step = until("committed")
        assert notes.keys() == [step.idempotency_key] * 2
    assert [attempt.state for attempt in Attempt.objects.order_by("fence")] == ["unknown", "done"]


def test_a_key_depends_on_each_of_its_four_parts_and_on_nothing_else() -> None:
    """Case H9: no clock, no random number, no attempt."""
    parts = ("saga", "step", "tool", "{}")
    key = downstream_key(*parts)
    assert downstream_key(*parts) == key
    for index in range(4):
        changed = [*parts[:index], parts[index] + " ", *parts[index + 1 :]]
        assert downstream_key(*changed) != key
