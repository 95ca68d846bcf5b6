"""A real HTTP target that counts what it does. Two kinds of it: `dedupes` answers a known
`Idempotency-Key` with the first effect, `plain` has every effect that it is asked for.

    POST /{kind}/{action}   {"key", "name", …}   an effect
    GET  /{kind}/{action}?key=…                  {"items": […]}: those that bear this key
"""

from __future__ import annotations

import itertools
import json
import socket
import struct
import threading
import time
from collections import Counter, deque
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Literal
from urllib.parse import parse_qs, urlsplit

# What the next request of an action meets. `hold`: the effect is there, the answer waits until
# `release` (`hold_first`: the effect waits too; `lost`: it waits, and never comes). `reset`: the
# effect is there, the connection breaks. `swallow`: no effect, and the connection breaks.
# `late`: no answer, and the effect comes `LATE_S` afterwards. `busy`, `refuse`: 503, 422.
Mood = Literal["hold", "hold_first", "lost", "reset", "swallow", "late", "busy", "refuse"]
LATE_S = 1.0


@dataclass(frozen=True, slots=True)
class Effect:
    """One thing that was really done. `name` says to whom, `action` what."""

    id: str
    kind: str
    action: str
    name: str
    key: str
    at: float


class Target:
    """The server and its books."""

    def __init__(self) -> None:
        self.effects: list[Effect] = []
        self.requests: Counter[tuple[str, str]] = Counter()
        self.arrived: Counter[tuple[str, str]] = Counter()
        self.moods: dict[tuple[str, str], deque[Mood]] = {}
        self.always: dict[tuple[str, str], Mood] = {}
        self.released = threading.Event()
        self.released.set()
        self._ids = itertools.count(1)
        self._lock = threading.Lock()
        self._server = _Server(("127.0.0.1", 0), _handler(self))
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    @property
    def port(self) -> int:
        return int(self._server.server_address[1])

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def close(self) -> None:
        self.released.set()
        self._server.shutdown()
        self._server.server_close()

    def expect(self, name: str, action: str, *moods: Mood) -> None:
        """What the next requests of this action for this name meet, in order."""
        self.moods[name, action] = deque(moods)

    def done(self, name: str, action: str = "") -> list[Effect]:
        """The effects for a name, in the order in which they came."""
        mine = [e for e in self.effects if e.name == name]
        return [e for e in mine if not action or e.action == action]

    def mood(self, name: str, action: str) -> Mood | None:
        with self._lock:
            self.arrived[name, action] += 1
            waiting = self.moods.get((name, action))
            return waiting.popleft() if waiting else self.always.get((name, action))

    def apply(self, kind: str, action: str, header: str, body: dict[str, Any]) -> Effect:
        with self._lock:
            name, key = str(body.get("name", "")), str(body.get("key", ""))
            if kind == "dedupes":
                for known in self.effects:
                    if known.kind == kind and known.key == header:
                        return known
            made = Effect(f"e{next(self._ids)}", kind, action, name, key, time.monotonic())
            self.effects.append(made)
            return made


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A caller that was killed is nothing to tell of."""


def _handler(target: Target) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the stdlib's
            """Quiet: the books tell."""

        def _answer(self, status: int, document: Any) -> None:
            raw = json.dumps(document).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(raw)))
            self.end_headers()
            self.wfile.write(raw)

        def _break(self) -> None:
            linger = struct.pack("ii", 1, 0)
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
            self.close_connection = True
            self.connection.close()

        def do_GET(self) -> None:
            parts = urlsplit(self.path)
            _, kind, action = parts.path.split("/")
            (key,) = parse_qs(parts.query)["key"]
            mine = [e for e in target.effects if (e.kind, e.action, e.key) == (kind, action, key)]
            self._answer(200, {"items": [{"id": e.id, "key": e.key, "name": e.name} for e in mine]})

        def do_POST(self) -> None:
            _, kind, action = self.path.split("/")
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            header = self.headers.get("Idempotency-Key", "")
            name = str(body.get("name", ""))
            mood = target.mood(name, action)
            if mood in ("busy", "refuse"):
                self._answer(503 if mood == "busy" else 422, {"error": mood})
                return
            if mood in ("swallow", "late"):
                if mood == "late":
                    what = (kind, action, header, body)
                    threading.Timer(LATE_S, target.apply, what).start()
                self._break()
                return
            if mood in ("hold_first", "lost"):
                target.released.wait(60)
            if mood == "lost":
                self._break()
                return
            made = target.apply(kind, action, header, body)
            if mood == "hold":
                target.released.wait(60)
            if mood == "reset":
                self._break()
                return
            self._answer(200, {"id": made.id, "key": made.key, "name": made.name})

    return Handler
