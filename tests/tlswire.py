"""A TLS end in front of a Postgres on a unix socket, as managed databases and poolers have it.

The embedded server is built without OpenSSL. What a client does is the same: libpq asks for TLS,
checks the certificate, and the socket that it then holds has a state that no two processes share.
"""

from __future__ import annotations

import asyncio
import ssl
import struct
import threading
from contextlib import suppress
from pathlib import Path
from typing import Self

import trustme

# The first words of a client (PostgreSQL, "Message Formats": SSLRequest and GSSENCRequest).
ASKS_TLS = struct.pack("!ii", 8, 80877103)
ASKS_GSS = struct.pack("!ii", 8, 80877104)
NO, YES = b"N", b"S"


class TlsWire:
    """Listens on loopback; `ca` is the file that vouches for it.

    Whoever does not ask for TLS is turned away, as by a `pg_hba.conf` of `hostssl` lines alone.
    `encrypted` and `refused` count connections.
    """

    def __init__(self, upstream: str, folder: Path) -> None:
        self.upstream = upstream
        self.ca = folder / "ca.pem"
        self.encrypted = self.refused = 0
        authority = trustme.CA()
        authority.cert_pem.write_to_path(str(self.ca))
        self._tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        authority.issue_cert("localhost", "127.0.0.1").configure_cert(self._tls)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        begun = asyncio.run_coroutine_threadsafe(self._begin(), self._loop)
        self.port = begun.result(10)
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)

    async def _begin(self) -> int:
        self._server = await asyncio.start_server(self._carry, "127.0.0.1", 0)
        return int(self._server.sockets[0].getsockname()[1])

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError, EOFError, ssl.SSLError):
            while (asked := await reader.readexactly(8)) == ASKS_GSS:
                writer.write(NO)
            if asked != ASKS_TLS:
                self.refused += 1
                writer.close()
                return
            writer.write(YES)
            await writer.drain()
            await writer.start_tls(self._tls)
            self.encrypted += 1
            server = await asyncio.open_unix_connection(self.upstream)
            await asyncio.gather(_pump(reader, server[1]), _pump(server[0], writer))


async def _pump(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
    with suppress(OSError, ssl.SSLError):
        while piece := await source.read(65536):
            sink.write(piece)
            await sink.drain()
    sink.close()
