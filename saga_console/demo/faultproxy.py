"""A wire that can break at the worst moment: after the target did it, before it said so.

The proxy stands in front of the payment server and passes everything on. Armed, it passes
the next matching request on in full, waits until the target has answered, and then cuts the
connection to the client instead of passing the answer. To the client that is exactly what a
crashed load balancer looks like, and nothing in it tells whether the effect happened.

It is armed in its own process (`FaultProxy.cut_next`) or from another one (`cut_next`), over
paths below `/-/` that the payment server does not have.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import threading
from dataclasses import asdict, dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, cast

import httpx

# Longer than any call of the demo; a target that hangs must not hold the proxy for ever.
UPSTREAM_TIMEOUT_S = 30.0
# How soon a server of `http.server` sees that it shall stop; its own half a second is waited for.
LOOK_S = 0.02
CONTROL = "/-/cuts"
# Belong to one connection, not to the message (RFC 9110, 7.6.1).
HOP_BY_HOP = frozenset(
    {"connection", "keep-alive", "proxy-connection", "te", "trailer", "transfer-encoding"}
    | {"upgrade", "content-length"}
)


@dataclass(frozen=True, slots=True)
class Cut:
    """One answer that never arrived: what the target had said."""

    method: str
    path: str
    status: int
    body: str


class FaultProxy:
    """An HTTP proxy on loopback in front of `upstream` (host, port)."""

    def __init__(
        self, upstream: tuple[str, int], port: int = 0, *, host: str = "127.0.0.1"
    ) -> None:
        self.upstream = upstream
        self.host = host
        self.port = port
        self.cuts: list[Cut] = []
        self._armed: list[tuple[str, str]] = []
        self._lock = threading.Lock()
        self._server: _Server | None = None

    @property
    def url(self) -> str:
        return f"http://{self.host}:{self.port}"

    def start(self) -> None:
        self._server = _Server((self.host, self.port), self)
        self.port = self._server.server_address[1]
        threading.Thread(target=self._server.serve_forever, args=[LOOK_S], daemon=True).start()

    def stop(self) -> None:
        server, self._server = self._server, None
        if server is not None:
            server.shutdown()
            server.server_close()

    def cut_next(self, method: str, path_prefix: str) -> None:
        """Swallow the answer to the next request of this method under this path."""
        with self._lock:
            self._armed.append((method, path_prefix))

    def take_cut(self, method: str, path: str) -> bool:
        """Whether this request is the one to cut; it is disarmed by asking."""
        with self._lock:
            for armed in self._armed:
                if method == armed[0] and path.startswith(armed[1]):
                    self._armed.remove(armed)
                    return True
            return False


def cut_next(proxy_url: str, method: str, path_prefix: str) -> None:
    """Arm a proxy that runs in another process."""
    armed = {"method": method, "path_prefix": path_prefix}
    httpx.post(proxy_url + CONTROL, json=armed, trust_env=False).raise_for_status()


def cuts(proxy_url: str) -> list[Cut]:
    """What a proxy in another process has cut off so far."""
    answer = httpx.get(proxy_url + CONTROL, trust_env=False)
    answer.raise_for_status()
    return [Cut(**cut) for cut in answer.json()]


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, address: tuple[str, int], proxy: FaultProxy) -> None:
        self.proxy = proxy
        super().__init__(address, _Wire)


class _Wire(BaseHTTPRequestHandler):
    """One client connection."""

    protocol_version = "HTTP/1.1"

    def pass_on(self) -> None:
        proxy = cast("_Server", self.server).proxy
        if self.path == CONTROL:
            self._control(proxy)
            return
        cut = proxy.take_cut(self.command, self.path)
        try:
            status, headers, body = self._ask(proxy.upstream)
        except (OSError, http.client.HTTPException):
            # Whether the target got it is not known here either: say nothing, hang up.
            self.close_connection = True
            return
        if cut:
            text = body.decode("utf-8", "replace")
            proxy.cuts.append(Cut(self.command, self.path, status, text))
            self.close_connection = True
            return
        self._answer(status, headers, body)

    # http.server finds the method of a request by these names.
    do_GET = do_HEAD = do_POST = do_PUT = do_PATCH = do_DELETE = pass_on  # noqa: N815

    def _control(self, proxy: FaultProxy) -> None:
        if self.command == "POST":
            proxy.cut_next(**json.loads(self._body()))
        cuts = json.dumps([asdict(cut) for cut in proxy.cuts]).encode()
        self._answer(200, [("Content-Type", "application/json")], cuts)

    def _answer(self, status: int, headers: list[tuple[str, str]], body: bytes) -> None:
        self.send_response_only(status)
        for name, value in headers:
            if name.lower() not in HOP_BY_HOP:
                self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def _body(self) -> bytes:
        return self.rfile.read(int(self.headers.get("Content-Length") or 0))

    def _ask(self, upstream: tuple[str, int]) -> tuple[int, list[tuple[str, str]], bytes]:
        body = self._body()
        wire = http.client.HTTPConnection(*upstream, timeout=UPSTREAM_TIMEOUT_S)
        with contextlib.closing(wire):
            wire.putrequest(self.command, self.path, skip_host=True, skip_accept_encoding=True)
            for name, value in self.headers.items():
                if name.lower() not in HOP_BY_HOP:
                    wire.putheader(name, value)
            wire.putheader("Content-Length", str(len(body)))
            wire.endheaders(body)
            answer = wire.getresponse()
            return answer.status, answer.getheaders(), answer.read()

    def log_message(self, *_: Any) -> None:
        """Quiet: the target writes its own access log."""
