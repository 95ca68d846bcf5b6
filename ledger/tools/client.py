"""The HTTP clients of this process: verified TLS, no redirects, no cookies, nothing from netrc.

Effects never reuse a connection. A kept connection that the target closes at the same
moment breaks *after* the request was written, and the engine would have to call that
unknown (rule 5.7): a handshake costs a millisecond, a needless unknown a probe or a person.
Probes change nothing, may simply be repeated, and so share connections.
"""

from __future__ import annotations

import os
import ssl
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from http.cookiejar import DefaultCookiePolicy

import certifi
import httpx

MAX_BODY_BYTES = 1_000_000
# Enough for every thread of a shift; a call that waits for a free slot is Failed, not lost.
MAX_CONNECTIONS = 200

_lock = threading.Lock()


@dataclass(frozen=True, slots=True)
class Answer:
    """What a target said. `broken` says why the body is not complete, if it is not."""

    status: int
    headers: httpx.Headers
    body: bytes
    broken: str | None = None

    @property
    def text(self) -> str:
        """The body as text, whatever bytes it has."""
        charset = "utf-8"
        for part in self.headers.get("content-type", "").split(";")[1:]:
            name, _, value = part.partition("=")
            if name.strip().lower() == "charset":
                charset = value.strip(" \"'") or charset
        try:
            return self.body.decode(charset, "replace")
        except LookupError:  # a charset that does not exist
            return self.body.decode("utf-8", "replace")


@cache
def _tls() -> ssl.SSLContext:
    # The machine's own trust store (a bank's private authority is there), and certifi's for
    # machines that come without one.
    context = ssl.create_default_context()
    context.load_verify_locations(certifi.where())
    return context


@cache
def _client_of(pid: int, reuse: bool) -> httpx.Client:
    limits = httpx.Limits(
        max_connections=MAX_CONNECTIONS,
        max_keepalive_connections=20 if reuse else 0,
        keepalive_expiry=2.0,
    )
    # trust_env would read netrc (credentials for the wrong target) and proxy variables.
    client = httpx.Client(verify=_tls(), limits=limits, trust_env=False, follow_redirects=False)
    # A session cookie from one call must not be sent with the next one.
    client.cookies.jar.set_policy(DefaultCookiePolicy(allowed_domains=[]))
    return client


def client(*, reuse: bool) -> httpx.Client:
    """The client of this process, made on first use. A forked child gets its own sockets."""
    with _lock:
        return _client_of(os.getpid(), reuse)


def _after_fork() -> None:
    global _lock  # another thread may have held it when the process was copied
    _lock = threading.Lock()


os.register_at_fork(after_in_child=_after_fork)


def send(request: httpx.Request, *, timeout_s: float, reuse: bool) -> Answer:
    """Send one request and read its answer, at most `timeout_s` in all.

    Raises httpx.TransportError when there was no status line; once there is one, it is
    returned, with `broken` set when the body could not be read to its end.
    """
    deadline = time.monotonic() + timeout_s
    request.extensions["timeout"] = httpx.Timeout(timeout_s).as_dict()
    with _streamed(request, reuse) as response:
        body, broken = _read(response, deadline)
        return Answer(response.status_code, response.headers, body, broken)


@contextmanager
def _streamed(request: httpx.Request, reuse: bool) -> Iterator[httpx.Response]:
    response = client(reuse=reuse).send(request, stream=True)
    try:
        yield response
    finally:
        response.close()


def _read(response: httpx.Response, deadline: float) -> tuple[bytes, str | None]:
    body = bytearray()
    try:
        for chunk in response.iter_bytes():
            body += chunk
            if len(body) > MAX_BODY_BYTES:
                return bytes(body[:MAX_BODY_BYTES]), f"it is longer than {MAX_BODY_BYTES} bytes"
            if time.monotonic() > deadline:
                return bytes(body), "the time was over before its end"
    except (httpx.TransportError, httpx.DecodingError) as error:
        return bytes(body), f"it broke off ({type(error).__name__})"
    return bytes(body), None
