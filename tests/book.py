"""A real HTTP target that keeps a book of every effect, so that doubles can be counted.

    POST /{kind}/effects {"what", "key"}    books an effect
    POST /{kind}/undos   {"of", "key"}      books that one was undone, or corrected
    POST /{kind}/refusals                   422, and nothing is booked
    GET  /{kind}/effects?key=K · /{kind}/undos?key=K     {"data": […]}
    GET  /book                              {"lines": […], "asked": n}
    PUT  /faults {"before", "after", "busy": probability, "slow_s": s}

`kind` is `dedupes` (an Idempotency-Key that it knows gets the first effect again) or `plain`
(each request is another effect). A fault is a TCP reset before the effect or after it, or 503.

    python -m tests.book PORT [SEED]
"""

from __future__ import annotations

import json
import os
import random
import socket
import struct
import sys
import threading
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import parse_qs, urlsplit

KINDS = ("dedupes", "plain")
NOUNS = ("effects", "undos")
FAULTS = ("before", "after", "busy", "garbled")
TOOLS = (Path(__file__).parent / "data" / "book.toml").read_text(encoding="utf-8")


def tools_text(url: str, *, settle_s: float) -> str:
    """The tools file for a book at this address."""
    return TOOLS.replace("BOOK_URL", url).replace("SETTLE_S", str(settle_s))


@dataclass
class Book:
    """What has happened out there, line by line: {id, kind, noun, what, of, key, at}."""

    seed: int = 0
    lines: list[dict[str, Any]] = field(default_factory=list)
    asked: int = 0
    faults: Counter[str] = field(default_factory=Counter)
    # The faults of the very next requests; the odds below hold when there is none.
    coming: list[str] = field(default_factory=list)
    odds: dict[str, float] = field(default_factory=dict)
    slow_s: float = 0.0

    def __post_init__(self) -> None:
        self._lock = threading.Lock()
        self._dice = random.Random(self.seed)
        self._by_key: dict[str, list[dict[str, Any]]] = {}

    def clear(self) -> None:
        """Nothing has ever happened."""
        with self._lock:
            self.lines.clear()
            self.coming.clear()
            self._by_key.clear()

    def fault(self) -> str:
        """What goes wrong with this request; '' for nothing."""
        with self._lock:
            self.asked += 1
            found = self.coming.pop(0) if self.coming else ""
            for name, chance in {} if found else self.odds.items():
                if self._dice.random() < chance:
                    found = name
                    break
            self.faults[found] += bool(found)
            return found

    def pauses(self) -> tuple[float, float]:
        """How long this request takes, before its effect and after it."""
        with self._lock:
            return self._dice.uniform(0, self.slow_s), self._dice.uniform(0, self.slow_s)

    def write(self, kind: str, noun: str, sent: Mapping[str, Any], key: str) -> dict[str, Any]:
        """Book it, or at the deduping target find what the key was used for."""
        with self._lock:
            mine = self._by_key.setdefault(key, [])
            known = [line for line in mine if line["kind"] == kind]
            if known and kind == "dedupes":
                return known[0]
            line = {
                "id": f"{kind}-{len(self.lines) + 1}",
                "kind": kind,
                "noun": noun,
                "what": sent.get("what", ""),
                "of": sent.get("of", ""),
                "key": key,
                "at": time.time(),
            }
            self.lines.append(line)
            mine.append(line)
            return line

    def take(self, line: dict[str, Any]) -> None:
        """A line of another book, as it was read there."""
        self.lines.append(line)
        self._by_key.setdefault(line["key"], []).append(line)

    def find(self, key: str, noun: str = "", kind: str = "") -> list[dict[str, Any]]:
        with self._lock:
            return [
                line
                for line in self._by_key.get(key, ())
                if noun in ("", line["noun"]) and kind in ("", line["kind"])
            ]


class _Clerk(BaseHTTPRequestHandler):
    """One request of the book in `server.book`."""

    protocol_version = "HTTP/1.1"
    server: Bookshop

    def do_POST(self) -> None:
        sent = self._body()
        _, kind, noun = urlsplit(self.path).path.split("/")
        book = self.server.book
        fault = book.fault()
        before_s, after_s = book.pauses()
        time.sleep(before_s)
        if fault == "before":
            self._reset()
        elif fault == "busy":
            self._answer(503, {"error": "come back later"})
        elif noun == "refusals":
            self._answer(422, {"error": "never"})
        else:
            line = book.write(kind, noun, sent, self.headers["Idempotency-Key"] or sent["key"])
            time.sleep(after_s)
            if fault == "after":
                self._reset()
            elif fault == "garbled":
                self._answer(200, b'{"id": ')
            else:
                self._answer(201, line)

    def do_GET(self) -> None:
        where = urlsplit(self.path)
        if where.path == "/book":
            book = self.server.book
            found = {"lines": book.lines, "asked": book.asked, "faults": dict(book.faults)}
            self._answer(200, found)
            return
        _, kind, noun = where.path.split("/")
        key = parse_qs(where.query)["key"][0]
        self._answer(200, {"data": self.server.book.find(key, noun, kind)})

    def do_PUT(self) -> None:
        sent = self._body()
        book = self.server.book
        book.slow_s = float(sent.pop("slow_s", 0.0))
        book.odds = sent
        self._answer(200, {})

    def _body(self) -> Any:
        return json.loads(self.rfile.read(int(self.headers.get("Content-Length", 0))) or b"{}")

    def _answer(self, status: int, body: Any) -> None:
        sent = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(sent)))
        self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(sent)

    def _reset(self) -> None:
        """Not the end of a connection: RST, as when a host or what is between has gone."""
        self.close_connection = True
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        os.close(self.connection.detach())

    def log_message(self, *_: Any) -> None:
        pass


class Bookshop(ThreadingHTTPServer):
    """The server of one book, on loopback."""

    daemon_threads = True
    request_queue_size = 256
    allow_reuse_address: ClassVar[bool] = True

    def __init__(self, book: Book, port: int = 0) -> None:
        super().__init__(("127.0.0.1", port), _Clerk)
        self.book = book

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    def handle_error(self, *_: Any) -> None:
        """A caller that was killed in the middle of its request is what this target is for."""


def main(port: int, seed: int = 0) -> None:
    Bookshop(Book(seed), port).serve_forever()


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
