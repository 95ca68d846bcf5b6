"""A target that speaks on a real loopback socket, byte by byte, as badly as a test wants."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

Answer = Callable[[socket.socket], None]


class SocketTarget:
    """Accepts connections one by one, reads a request, lets `answer` do the rest."""

    def __init__(self, answer: Answer, *, reads: bool = True) -> None:
        self._answer = answer
        self._reads = reads
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.requests: list[bytes] = []
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._listener.getsockname()[1]}"

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            with connection:
                connection.settimeout(10)
                try:
                    if self._reads:
                        self.requests.append(read_request(connection))
                    self._answer(connection)
                except OSError:
                    continue

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join(5)


def read_request(connection: socket.socket) -> bytes:
    """One whole HTTP/1.1 request: head, and as much body as its Content-Length says."""
    raw = b""
    while b"\r\n\r\n" not in raw:
        if not (chunk := connection.recv(65536)):
            return raw
        raw += chunk
    head, _, body = raw.partition(b"\r\n\r\n")
    lengths = [
        int(line.split(b":")[1])
        for line in head.lower().split(b"\r\n")
        if line.startswith(b"content-length:")
    ]
    while lengths and len(body) < lengths[0]:
        body += connection.recv(65536)
    return head + b"\r\n\r\n" + body


def says(status: str, body: bytes = b"", **headers: str) -> Answer:
    """Answer with one complete response."""
    lines = [f"HTTP/1.1 {status}", f"Content-Length: {len(body)}", "Connection: close"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    raw = "\r\n".join(lines).encode() + b"\r\n\r\n" + body
    return lambda connection: connection.sendall(raw)


def says_json(status: str, body: bytes, **headers: str) -> Answer:
    """Answer with one complete response that calls itself JSON."""
    return says(status, body, Content_Type="application/json", **headers)


@contextmanager
def target(answer: Answer, *, reads: bool = True) -> Iterator[SocketTarget]:
    """A target for the time of a test."""
    running = SocketTarget(answer, reads=reads)
    try:
        yield running
    finally:
        running.close()
