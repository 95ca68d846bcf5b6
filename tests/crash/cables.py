"""A TCP cable between one process and one server, to be cut or stalled while it is used."""

from __future__ import annotations

import socket
import struct
import threading
import time
from contextlib import suppress
from typing import Literal

Loss = Literal["", "request", "answer"]
COMMIT = b"COMMIT"


class Cable:
    """Forwards loopback TCP to a unix socket (or `host, port`), one pair of threads a connection.

    `cut()` breaks what is there; `severed` refuses what comes; `stalled` keeps everything open
    and passes nothing on. `lose` breaks the connection at its next COMMIT, before the server has
    seen it ("request") or after it has carried it out ("answer").
    """

    def __init__(self, upstream: str | tuple[str, int]) -> None:
        self.upstream = upstream
        self.severed = False
        self.stalled = False
        self.lose: Loss = ""
        self.lost = threading.Event()
        self._pairs: set[tuple[socket.socket, socket.socket]] = set()
        self._lock = threading.Lock()
        self._door = socket.create_server(("127.0.0.1", 0), backlog=128)
        self.port = int(self._door.getsockname()[1])
        threading.Thread(target=self._serve, daemon=True).start()

    def close(self) -> None:
        self._door.close()
        self.cut()

    def cut(self) -> None:
        with self._lock:
            pairs = list(self._pairs)
        for pair in pairs:
            _break(*pair)

    def _serve(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._door.accept()
                threading.Thread(target=self._carry, args=(client,), daemon=True).start()

    def _connect(self) -> socket.socket:
        if isinstance(self.upstream, tuple):
            return socket.create_connection(self.upstream)
        server = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        server.connect(self.upstream)
        return server

    def _carry(self, client: socket.socket) -> None:
        if self.severed:
            _break(client)
            return
        try:
            server = self._connect()
        except OSError:
            _break(client)
            return
        pair = (client, server)
        with self._lock:
            self._pairs.add(pair)
        back = threading.Thread(target=self._pump, args=(server, client, pair), daemon=True)
        back.start()
        self._pump(client, server, pair)
        back.join()
        with self._lock:
            self._pairs.discard(pair)
        client.close()
        server.close()

    def _pump(
        self, source: socket.socket, sink: socket.socket, pair: tuple[socket.socket, socket.socket]
    ) -> None:
        client, server = pair
        with suppress(OSError):
            while piece := source.recv(65536):
                while self.stalled:
                    time.sleep(0.01)
                if source is client and self.lose and COMMIT in piece:
                    self._lose(piece, client, server)
                    return
                sink.sendall(piece)
        with suppress(OSError):
            sink.shutdown(socket.SHUT_WR)

    def _lose(self, piece: bytes, client: socket.socket, server: socket.socket) -> None:
        """The COMMIT arrives or it does not; the client hears nothing in either case."""
        loss, self.lose = self.lose, ""
        if loss == "answer":
            _break(client)
            server.sendall(piece)
            server.shutdown(socket.SHUT_WR)
        else:
            _break(client, server)
        self.lost.set()


def _break(*ends: socket.socket) -> None:
    """End connections with a reset, so that both sides notice at once."""
    for end in ends:
        with suppress(OSError):
            end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        with suppress(OSError):
            end.shutdown(socket.SHUT_RDWR)
        if len(ends) == 1:
            with suppress(OSError):
                end.close()
