"""A light HTTP client: one kept connection, plain sockets, no more than the API's answers need.

The client shares its cores with what it measures; `http.client` alone would cost ten times this.
"""

from __future__ import annotations

import json
import socket
import time
from dataclasses import dataclass
from typing import Any, Self

# The server's own longest wait is a minute; who hears nothing for longer has found a fault.
_SILENCE_S = 90.0
_CHUNK = 65_536


class Broken(RuntimeError):
    """The server ended the connection, or said what this client cannot read."""


@dataclass(frozen=True, slots=True)
class Reply:
    """Header names are in lower case; `seconds`, from the request's first byte to the last here."""

    status: int
    headers: dict[str, str]
    body: bytes
    seconds: float

    def json(self) -> Any:
        return json.loads(self.body)


class Line:
    """A kept connection to 127.0.0.1:`port` that carries `token`. Not for several threads."""

    def __init__(self, port: int, token: str) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=_SILENCE_S)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._unread = b""
        self._common = (
            f"Host: localhost:{port}\r\nAuthorization: Bearer {token}\r\n"
            "Accept: application/json\r\n"
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exc: object) -> None:
        self._socket.close()

    def get(self, path: str) -> Reply:
        return self._ask(f"GET {path} HTTP/1.1\r\n{self._common}\r\n".encode())

    def post(self, path: str, document: Any, *, wait_s: int = 0) -> Reply:
        """Send JSON; with `wait_s`, `Prefer: wait=` asks for the finished answer."""
        body = json.dumps(document, separators=(",", ":")).encode()
        prefer = f"Prefer: wait={wait_s}\r\n" if wait_s else ""
        head = (
            f"POST {path} HTTP/1.1\r\n{self._common}{prefer}"
            f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        )
        return self._ask(head.encode() + body)

    def _ask(self, request: bytes) -> Reply:
        started = time.perf_counter()
        self._socket.sendall(request)
        first, *lines = self._until(b"\r\n\r\n").decode("latin-1").split("\r\n")
        named = (line.partition(":") for line in lines)
        headers = {name.lower(): value.strip() for name, _, value in named}
        body = self._body(headers)
        seconds = time.perf_counter() - started
        return Reply(int(first.split(" ", 2)[1]), headers, body, seconds)

    def _body(self, headers: dict[str, str]) -> bytes:
        if headers.get("transfer-encoding", "").lower() != "chunked":
            return self._exactly(int(headers.get("content-length", "0")))
        parts = []
        while size := int(self._until(b"\r\n"), 16):
            parts.append(self._exactly(size))
            self._until(b"\r\n")
        self._until(b"\r\n")
        return b"".join(parts)

    def _until(self, mark: bytes) -> bytes:
        while (end := self._unread.find(mark)) < 0:
            self._read()
        found, self._unread = self._unread[:end], self._unread[end + len(mark) :]
        return found

    def _exactly(self, size: int) -> bytes:
        while len(self._unread) < size:
            self._read()
        found, self._unread = self._unread[:size], self._unread[size:]
        return found

    def _read(self) -> None:
        more = self._socket.recv(_CHUNK)
        if not more:
            raise Broken("the server closed the connection")
        self._unread += more
