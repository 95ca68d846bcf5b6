"""The HTTP client of this process: verified TLS, no redirects, no cookies, nothing from netrc.

No connection is used twice. A kept connection that the target closes at the same moment
breaks *after* the request was written, and the engine would have to call that unknown
(rule 5.7): a handshake costs milliseconds, a needless unknown a probe or a person.
"""

from __future__ import annotations

import os
import ssl
import threading
from dataclasses import dataclass
from functools import cache
from http.cookiejar import DefaultCookiePolicy

import certifi
import httpx

from ledger import faultpoints
from ledger.tools.deadline import OneCallTransport

MAX_BODY_BYTES = 1_000_000
# Enough for every thread of a shift; a call that waits for a free slot is Failed, not lost.
MAX_CONNECTIONS = 200
MAX_POOL_WAIT_S = 1.0

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
def _client_of(pid: int) -> httpx.Client:
    # trust_env would read netrc (credentials for the wrong target) and proxy variables.
    client = httpx.Client(
        transport=OneCallTransport(_tls(), MAX_CONNECTIONS),
        trust_env=False,
        follow_redirects=False,
    )
    # A session cookie from one call must not be sent with the next one.
    client.cookies.jar.set_policy(DefaultCookiePolicy(allowed_domains=[]))
    return client


def client() -> httpx.Client:
    """The client of this process, made on first use. A forked child makes its own."""
    with _lock:
        return _client_of(os.getpid())


def _after_fork() -> None:
    global _lock  # noqa: PLW0603 - another thread may have held it when the process was copied
    _lock = threading.Lock()


os.register_at_fork(after_in_child=_after_fork)


def send(request: httpx.Request, *, timeout_s: float) -> Answer:
    """Send one request and read its answer, at most `timeout_s` from the connect on.

    Raises httpx.TransportError when there was no status line; once there is one, it is
    returned, with `broken` set when the body could not be read to its end.
    """
    timeout = httpx.Timeout(timeout_s, pool=min(timeout_s, MAX_POOL_WAIT_S))
    request.extensions["timeout"] = timeout.as_dict()
    response = client().send(request, stream=True)
    faultpoints.reached("P11", request.method)
    try:
        body, broken = _read(response)
        return Answer(response.status_code, response.headers, body, broken)
    finally:
        response.close()


def _read(response: httpx.Response) -> tuple[bytes, str | None]:
    body = bytearray()
    try:
        for chunk in response.iter_bytes():
            body += chunk
            if len(body) > MAX_BODY_BYTES:
                return bytes(body[:MAX_BODY_BYTES]), f"it is longer than {MAX_BODY_BYTES} bytes"
    except (httpx.TransportError, httpx.DecodingError) as error:
        return bytes(body), f"it broke off ({type(error).__name__})"
    return bytes(body), None
