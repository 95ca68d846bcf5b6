"""A wire between the console and a target that can be slow, or hold every answer back."""

from __future__ import annotations

import socket
import threading
import time
from contextlib import closing, suppress
from typing import Self


class Wire:
    """A TCP relay on loopback. Requests pass at once; answers wait `delay_s`, or while held.

    The target has done its work when its answer is held back, so whoever is killed, or
    stopped, meanwhile leaves an effect that nobody has heard of.
    """

    def __init__(self, target: str) -> None:
        host, port = target.removeprefix("http://").split(":")
        self.upstream = (host, int(port))
        self.delay_s = 0.0
        self.loses = False  # a request that comes meanwhile never arrives, and is never answered
        self.held = 0
        self._open = threading.Event()
        self._open.set()
        self._door = socket.create_server(("127.0.0.1", 0), backlog=256)
        threading.Thread(target=self._serve, daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._door.getsockname()[1]}"

    def __enter__(self) -> Self:
        """Hold every answer until the block ends."""
        self.held = 0
        self._open.clear()
        return self

    def __exit__(self, *_: object) -> None:
        self._open.set()

    def close(self) -> None:
        self._open.set()
        self._door.close()

    def _serve(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._door.accept()
                threading.Thread(target=self._carry, args=(client,), daemon=True).start()

    def _carry(self, client: socket.socket) -> None:
        if self.loses:
            self._lose(client)
            return
        with suppress(OSError), client, closing(socket.create_connection(self.upstream)) as target:
            there = threading.Thread(target=self._pump, args=(client, target, False), daemon=True)
            there.start()
            self._pump(target, client, True)

    def _lose(self, client: socket.socket) -> None:
        with client:
            self.held += 1
            while self.loses:
                time.sleep(0.02)

    def _pump(self, source: socket.socket, sink: socket.socket, is_answer: bool) -> None:
        with suppress(OSError):
            while piece := source.recv(65536):
                if is_answer:
                    self.held += 1
                    time.sleep(self.delay_s)
                    self._open.wait()
                sink.sendall(piece)
            sink.shutdown(socket.SHUT_WR)
