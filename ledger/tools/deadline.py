"""A connection that lives for one call, and never longer than the call may take in all.

httpx has a timeout for each read, so a target that sends one byte a second would hold a
worker beyond its lease, and a lease is promised to outlast the call (design rule 5.6).
"""

from __future__ import annotations

import ssl
import time
from collections.abc import Iterable
from typing import Any

import httpcore
import httpx

SocketOption = (
    tuple[int, int, int] | tuple[int, int, bytes | bytearray] | tuple[int, int, None, int]
)


class _Stream(httpcore.NetworkStream):
    """A stream whose every wait is cut at one moment (monotonic seconds)."""

    def __init__(self, stream: httpcore.NetworkStream, deadline: float) -> None:
        self._stream = stream
        self._deadline = deadline

    def _left(self, timeout: float | None) -> float:
        left = self._deadline - time.monotonic()
        return left if timeout is None else min(left, timeout)

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        if (left := self._left(timeout)) <= 0:
            raise httpcore.ReadTimeout("the time for the whole call is over")
        return self._stream.read(max_bytes, left)

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        if (left := self._left(timeout)) <= 0:
            raise httpcore.WriteTimeout("the time for the whole call is over")
        self._stream.write(buffer, left)

    def close(self) -> None:
        self._stream.close()

    def start_tls(
        self,
        ssl_context: ssl.SSLContext,
        server_hostname: str | None = None,
        timeout: float | None = None,
    ) -> httpcore.NetworkStream:
        if (left := self._left(timeout)) <= 0:
            raise httpcore.ConnectTimeout("the time for the whole call is over")
        return _Stream(self._stream.start_tls(ssl_context, server_hostname, left), self._deadline)

    def get_extra_info(self, info: str) -> Any:
        return self._stream.get_extra_info(info)


class _Backend(httpcore.SyncBackend):
    """Starts each connection's clock: the connect timeout is the time of the whole call."""

    def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[SocketOption] | None = None,
    ) -> httpcore.NetworkStream:
        started = time.monotonic()
        stream = super().connect_tcp(host, port, timeout, local_address, socket_options)
        return stream if timeout is None else _Stream(stream, started + timeout)


class OneCallTransport(httpx.HTTPTransport):
    """httpx's own transport, with a fresh connection a call and a deadline on it."""

    def __init__(self, tls: ssl.SSLContext, max_connections: int) -> None:
        super().__init__(verify=tls, trust_env=False)
        # httpx has no argument for httpcore's network backend; tests/test_tools_http.py
        # fails if an upgrade ever stops using this pool.
        self._pool = httpcore.ConnectionPool(
            ssl_context=tls,
            max_connections=max_connections,
            max_keepalive_connections=0,
            network_backend=_Backend(),
        )
