"""Every row of the outcome table (design rule 5.7), over real sockets."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest

from ledger.outcomes import Applied, Done, Failed, NotApplied, Outcome, StillUnknown, Unknown
from ledger.states import Direction
from tests.sockets import Answer, says, says_json, target
from tests.tooltexts import call, execute, tool_of

JSON = "application/json"


def outcome_of(answer: Answer, *, reads: bool = True, timeout_s: float = 5.0) -> Outcome:
    with target(answer, reads=reads) as running:
        return tool_of(execute(running.url + "/do")).run(call(timeout_s=timeout_s))


def sends(raw: bytes) -> Answer:
    return lambda connection: connection.sendall(raw)


@pytest.mark.parametrize(
    ("answer", "result"),
    [
        (says_json("200 OK", b'{"id": "re_1"}'), {"id": "re_1"}),
        (says_json("201 Created", b"[1, null]"), [1, None]),
        (says("200 OK", b"{}", Content_Type="application/hal+json; charset=utf-8"), {}),
        (says("200 OK", b'{"id": 1}'), {"id": 1}),
        (says("200 OK", b"queued"), {"status": 200, "text": "queued"}),
        (says("202 Accepted", b"<p>", Content_Type="text/html"), {"status": 202, "text": "<p>"}),
        (says("204 No Content"), {"status": 204, "text": ""}),
        (says_json("204 No Content", b""), {"status": 204, "text": ""}),
        (
            says("200 OK", b"\xe9", Content_Type="text/plain; charset=latin-1"),
            {"status": 200, "text": "é"},
        ),
        (
            says("200 OK", b"x", Content_Type="text/plain; charset=no-such"),
            {"status": 200, "text": "x"},
        ),
    ],
)
def test_a_2xx_is_done_with_its_body(answer: Answer, result: object) -> None:
    assert outcome_of(answer) == Done(result)


@pytest.mark.parametrize(
    "answer",
    [
        says_json("200 OK", b"{not json"),
        says_json("200 OK", b""),
        says_json("200 OK", b"[" * 100_000),
        says_json("200 OK", b'"' + b"x" * 1_000_001 + b'"'),
        sends(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 99\r\n\r\n{}"),
        says("301 Moved", Location="http://127.0.0.1:1/elsewhere"),
        says("303 See Other", Location="/done"),
        says("500 Internal Server Error", b"boom"),
        says("501 Not Implemented"),
        says("502 Bad Gateway"),
        says("504 Gateway Timeout"),
        says("599 Odd"),
        sends(b""),
        sends(b"HTTP/1.1 20"),
        sends(b"nonsense\r\n\r\n"),
    ],
    ids=range(15),
)
def test_whatever_leaves_a_doubt_is_unknown(answer: Answer) -> None:
    """Case C69: an error body, a 500 or an answer that cannot be read is a doubt, by one table."""
    assert isinstance(outcome_of(answer), Unknown)


def test_a_reset_after_sending_is_unknown() -> None:
    def reset(connection: socket.socket) -> None:
        linger = (1).to_bytes(4, "little") + (0).to_bytes(4, "little")
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)

    assert isinstance(outcome_of(reset), Unknown)


def test_silence_after_sending_is_unknown_when_the_time_is_over() -> None:
    started = time.monotonic()
    assert isinstance(outcome_of(lambda _: time.sleep(1), timeout_s=0.3), Unknown)
    assert time.monotonic() - started < 3


@pytest.mark.parametrize("start", [b"HTTP/1.1 200 OK\r\nX-Slow: ", b"HTTP/1.1 200 OK\r\n\r\n"])
def test_a_trickle_of_bytes_cannot_hold_a_worker_beyond_the_timeout(start: bytes) -> None:
    def trickle(connection: socket.socket) -> None:
        connection.sendall(start)
        for _ in range(200):
            time.sleep(0.05)
            connection.sendall(b"x")

    with target(trickle) as running:
        tool = tool_of(execute(running.url))
        started = time.monotonic()
        tool.run(call(timeout_s=0.4))
        assert time.monotonic() - started < 5


@pytest.mark.parametrize("status", ["400 Bad", "401 No", "404 Not Found", "409 Conflict", "422 Un"])
def test_other_4xx_are_failed_for_good(status: str) -> None:
    outcome = outcome_of(says_json(status, b'{"error": "card  declined"}'))
    assert isinstance(outcome, Failed)
    assert not outcome.retryable
    assert "card declined" in outcome.error


def test_a_4xx_whose_body_breaks_off_is_still_failed() -> None:
    assert outcome_of(sends(b"HTTP/1.1 402 No\r\nContent-Length: 99\r\n\r\nno m")) == Failed(
        "402 no m"
    )


@pytest.mark.parametrize("status", ["429 Too Many Requests", "503 Service Unavailable"])
def test_429_and_503_may_be_tried_again_when_the_target_says(status: str) -> None:
    assert outcome_of(says(status, Retry_After="7")) == Failed(status[:3], True, 7.0)
    assert outcome_of(says(status)) == Failed(status[:3], True, None)
    assert outcome_of(says(status, Retry_After="soon")) == Failed(status[:3], True, None)


def test_retry_after_may_be_a_date() -> None:
    at = format_datetime(datetime.now(UTC) + timedelta(seconds=60), usegmt=True)
    outcome = outcome_of(says("503 Busy", Retry_After=at))
    assert isinstance(outcome, Failed)
    assert outcome.retry_after_s == pytest.approx(60, abs=3)


def test_no_listener_is_failed_and_retryable() -> None:
    with socket.create_server(("127.0.0.1", 0)) as reserved:
        port = reserved.getsockname()[1]
    outcome = tool_of(execute(f"http://127.0.0.1:{port}/")).run(call())
    assert isinstance(outcome, Failed)
    assert outcome.retryable


def test_an_unknown_host_is_failed_and_retryable() -> None:
    outcome = tool_of(execute("http://no-such-host.invalid/")).run(call())
    assert isinstance(outcome, Failed)
    assert outcome.retryable


def test_a_failed_tls_handshake_is_failed_because_nothing_was_sent() -> None:
    with target(sends(b"this is not TLS at all\r\n"), reads=False) as running:
        outcome = tool_of(execute(running.url.replace("http:", "https:"))).run(call())
    assert isinstance(outcome, Failed)
    assert outcome.retryable


def test_every_attempt_carries_the_key_and_no_connection_or_cookie_is_used_twice() -> None:
    still_open: list[socket.socket] = []

    def keeps_open(connection: socket.socket) -> None:
        # A second request on this connection would never be answered.
        still_open.append(connection.dup())
        connection.sendall(b"HTTP/1.1 200 OK\r\nSet-Cookie: a=b\r\nContent-Length: 0\r\n\r\n")

    keys = ["k1", "k2", "comp:k3"]
    with target(keeps_open) as running:
        tool = tool_of(execute(running.url))
        outcomes = [tool.run(call(key=key, timeout_s=1)) for key in keys]
        heads = [request.lower().decode() for request in running.requests]
    for connection in still_open:
        connection.close()
    assert [type(outcome) for outcome in outcomes] == [Done] * 3
    assert all(f"idempotency-key: {k}\r\n" in head for k, head in zip(keys, heads, strict=True))
    assert not any("cookie" in head for head in heads)


def test_a_redirect_is_never_followed() -> None:
    with target(says("200 OK")) as other, target(says("307 Go", Location=other.url)) as running:
        assert isinstance(tool_of(execute(running.url)).run(call()), Unknown)
        assert other.requests == []


def test_a_forked_child_makes_its_own_connections() -> None:
    with target(says("200 OK")) as running:
        tool = tool_of(execute(running.url))
        assert isinstance(tool.run(call()), Done)
        child = os.fork()
        if child == 0:
            os._exit(0 if isinstance(tool.run(call()), Done) else 1)
        assert os.waitpid(child, 0)[1] == 0
        assert isinstance(tool.run(call()), Done)


PROBE = '[tools."t".probe]\nmethod = "GET"\nurl = "{url}/{{args.id}}"\n{more}\n'


def probed(answer: Answer, more: str = "", **args: object) -> object:
    with target(answer) as running:
        text = execute(running.url) + PROBE.format(url=running.url, more=more)
        sighting = tool_of(text).probe(call({"id": "a1", **args}))
        assert all(b"idempotency-key" not in request.lower() for request in running.requests)
        return sighting


MATCH = 'match = "data[?key == {idempotency_key}] | [0]"'
FOUND = b'{"data": [{"key": "other"}, {"key": "key-1", "id": "re_9"}]}'


def test_a_probe_with_a_match_is_applied_with_what_it_found() -> None:
    assert probed(says_json("200 OK", FOUND), MATCH) == Applied({"key": "key-1", "id": "re_9"})


def test_a_probe_without_match_takes_the_whole_answer() -> None:
    assert probed(says_json("200 OK", b'{"id": 1}')) == Applied({"id": 1})


def test_zero_is_a_value_that_was_found() -> None:
    assert probed(says_json("200 OK", b'{"n": 0}'), 'match = "n"') == Applied(0)


@pytest.mark.parametrize(
    ("answer", "more"),
    [
        (says("404 Not Found"), ""),
        (says_json("200 OK", b'{"data": []}'), MATCH),
        (says_json("200 OK", b'{"data": [{"key": "other"}]}'), MATCH),
        (says_json("200 OK", b'{"items": []}'), 'match = "items"'),
        (says_json("200 OK", b'{"ok": false}'), 'match = "ok"'),
    ],
)
def test_a_probe_that_finds_nothing_says_not_applied(answer: Answer, more: str) -> None:
    assert probed(answer, more) == NotApplied()


@pytest.mark.parametrize(
    ("answer", "more"),
    [
        (says("410 Gone"), ""),
        (says("401 Unauthorized"), MATCH),
        (says("302 Found", Location="/login"), MATCH),
        (says("500 Oops"), MATCH),
        (says("200 OK", b"<html>please log in</html>", Content_Type="text/html"), MATCH),
        (says_json("200 OK", b"{"), MATCH),
        (says_json("200 OK", b"{"), ""),
        (sends(b"HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n{}"), ""),
        (sends(b""), MATCH),
        (says_json("200 OK", b'{"n": 1}'), 'match = "length(n)"'),
    ],
)
def test_a_probe_that_cannot_tell_stays_unknown(answer: Answer, more: str) -> None:
    assert isinstance(probed(answer, more), StillUnknown)


GONE = '[tools."t".compensate]\nmethod = "DELETE"\nurl = "{url}/{{result.id}}"\n{more}\n'


@pytest.mark.parametrize(
    ("more", "judge"),
    [
        ("", lambda outcome: outcome == Failed("404")),
        ("gone_is_done = true", lambda outcome: isinstance(outcome, Done)),
    ],
)
def test_undoing_what_is_gone_fails_unless_gone_is_done(
    more: str, judge: Callable[[Outcome], bool]
) -> None:
    with target(says("404 Not Found")) as running:
        text = execute(running.url) + GONE.format(url=running.url, more=more)
        tool = tool_of(text, tier="compensatable")
        undone = tool.run(call(direction=Direction.COMPENSATE, result={"id": "x"}))
        assert running.requests[0].startswith(b"DELETE /x HTTP/1.1")
    assert judge(undone)


@pytest.mark.parametrize("echo", ["Bearer sk_live_123456", "sk_live_123456"])
@pytest.mark.parametrize("status", ["200 OK", "400 Bad", "500 Oops"])
def test_a_secret_that_the_target_echoes_is_masked(status: str, echo: str) -> None:
    environ = {"TOKEN": "Bearer sk_live_123456"}
    with target(says(status, f'{{"you": "sent {echo}"}}'.encode())) as running:
        tool = tool_of(execute(running.url, 'headers = { Authorization = "env:TOKEN" }'), environ)
        outcome = tool.run(call())
        assert b"bearer sk_live_123456" in running.requests[0].lower()
    assert "sk_live" not in repr(outcome)
    assert "•••" in repr(outcome)
    assert "sk_live" not in repr((tool, tool.definition, tool.digest, tool.target))
