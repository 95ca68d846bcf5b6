"""The mail server, from one address in the environment. No Django: settings read it."""

from __future__ import annotations

from dataclasses import dataclass, field
from urllib.parse import unquote, urlsplit

from saga_console.environment import BadSetting

# The port of each scheme when the address names none (RFC 8314, RFC 6409, RFC 5321).
_PORTS = {"smtps": 465, "smtp+starttls": 587, "smtp": 25}
_WANTED = "smtps://USER:PASSWORD@HOST, smtp+starttls://USER:PASSWORD@HOST:587 or smtp://HOST"


@dataclass(frozen=True, slots=True)
class MailServer:
    """What Django's SMTP backend is told. `tls`: from the first byte; `starttls`: later."""

    host: str = "localhost"
    port: int = 25
    user: str = ""
    password: str = field(default="", repr=False)
    tls: bool = False
    starttls: bool = False


def mail_server(name: str, url: str) -> MailServer:
    """The server that the variable `name` describes. Raises BadSetting, without the password."""
    if not url:
        return MailServer()
    wrong = BadSetting(name, f"{_WANTED} is needed")
    try:
        parts = urlsplit(url)
        port = parts.port or _PORTS.get(parts.scheme, 0)
    except ValueError:
        raise wrong from None
    if parts.scheme not in _PORTS or not parts.hostname or parts.path.strip("/"):
        raise wrong
    user, password = unquote(parts.username or ""), unquote(parts.password or "")
    if password and parts.scheme == "smtp":
        raise BadSetting(name, "a password is sent over TLS only: smtps:// or smtp+starttls://")
    return MailServer(
        host=parts.hostname,
        port=port,
        user=user,
        password=password,
        tls=parts.scheme == "smtps",
        starttls=parts.scheme == "smtp+starttls",
    )
