"""Who receives messages in tests: a real SMTP server (aiosmtpd) and a real HTTP server."""

from __future__ import annotations

import email
import email.policy
import json
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from aiosmtpd.controller import Controller
from standardwebhooks.webhooks import Webhook

from approvals.services import spreading
from ledger import storage
from ledger.channels import channels
from ledger.postman import Postman
from ledger.services import telling
from saga_console.demo.faultproxy import LOOK_S
from tests.running import free_port

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"


@dataclass
class Mailbox:
    """An SMTP server that keeps what it is given. `refuse` is its answer instead of 250."""

    mails: list[Any] = field(default_factory=list)
    refuse: str = ""
    port: int = 0

    async def handle_DATA(self, _server: Any, _session: Any, envelope: Any) -> str:
        if self.refuse:
            return self.refuse
        mail = email.message_from_bytes(envelope.content, policy=email.policy.default)
        self.mails.append(mail)
        mail.rcpt = envelope.rcpt_tos
        return "250 OK"


@dataclass
class Received:
    """One POST, as it came."""

    path: str
    headers: dict[str, str]
    body: str

    @property
    def json(self) -> Any:
        return json.loads(self.body)


@dataclass
class Receiver:
    """An HTTP server that keeps what it is given; `answer(request)` says (status, headers)."""

    got: list[Received] = field(default_factory=list)
    answer: Callable[[Received], tuple[int, dict[str, str]]] = lambda _request: (204, {})
    port: int = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def verified(self, secret: str = SECRET) -> list[Any]:
        """What came, each verified by the library; raises when a signature is wrong."""
        return [Webhook(secret).verify(one.body, one.headers) for one in self.got]


@pytest.fixture
def mailbox(settings: Any) -> Iterator[Mailbox]:
    box = Mailbox()
    server = Controller(box, hostname="127.0.0.1", port=free_port())
    server.start()
    box.port = server.port
    settings.EMAIL_BACKEND = "django.core.mail.backends.smtp.EmailBackend"
    settings.EMAIL_HOST, settings.EMAIL_PORT = "127.0.0.1", server.port
    settings.SAGA_MAIL_FROM = "Saga Console <console@example.org>"
    yield box
    server.stop()


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    kept = Receiver()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"])).decode()
            request = Received(self.path, {k.lower(): v for k, v in self.headers.items()}, body)
            kept.got.append(request)
            status, headers = kept.answer(request)
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, *_words: Any) -> None:
            """Quiet: the test says what it wants to know."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    kept.port = server.server_port
    thread = threading.Thread(target=server.serve_forever, args=[LOOK_S], daemon=True)
    thread.start()
    yield kept
    server.shutdown()
    server.server_close()


Write = Callable[..., None]


@pytest.fixture
def channels_file(
    settings: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Write]:
    """Write the channels file of this test; its secrets by name."""

    def write(text: str, **environ: str) -> None:
        for name, value in environ.items():
            monkeypatch.setenv(name, value)
        path = tmp_path / "channels.toml"
        path.write_text(text, encoding="utf-8")
        settings.SAGA_CHANNELS = str(path)
        channels.cache_clear()
        channels()

    yield write
    channels.cache_clear()


def webhook_channel(name: str, groups: str = "approvers", form: str = "webhook") -> str:
    """One channel; its address is in the variable HOOK_URL, its key in HOOK_KEY."""
    secret = 'secret = "env:HOOK_KEY"\n' if form == "webhook" else ""
    return (
        f'[channel.{name}]\nform = "{form}"\ngroups = ["{groups}"]\nurl = "env:HOOK_URL"\n{secret}'
    )


def post(within_s: float = 30.0) -> None:
    """What relays do: spread what is to be told, and send what is due."""
    spreading.spread()
    telling.spread_sagas()
    Postman().drain(within_s)


def make_due() -> None:
    """As if the wait were over: the database's clock is the only one that counts."""
    storage.execute("UPDATE ledger_message SET due_at = clock_timestamp() WHERE state = 'waiting'")
