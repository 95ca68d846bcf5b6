"""Who is told, and how: the channels of `SAGA_CHANNELS`, a TOML file. One fault, and no start.

[channel.desk]
form = "mail"                       # mail | webhook | slack | teams
groups = ["approvers"]              # whose requests; "*" for all
to = ["desk@example.org"]           # or: members = true
"""

from __future__ import annotations

import base64
import os
import re
import tomllib
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from django.conf import settings
from django.core.exceptions import ValidationError
from django.core.validators import validate_email
from jsonschema import Draft202012Validator

from ledger.masking import know
from ledger.tools.faults import Fault
from ledger.tools.lines import Lines, syntax_line

FORMS = ("mail", "webhook", "slack", "teams")
EVERYBODY = "*"
_NAME = re.compile(r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,79}$")
_ENV = re.compile(r"^env:([A-Za-z_][A-Za-z0-9_]*)$")
_TEXTS = {"type": "array", "minItems": 1, "items": {"type": "string", "minLength": 1}}
_FIELDS: Mapping[str, Any] = {
    "form": {"enum": list(FORMS)},
    "groups": _TEXTS,
    "to": _TEXTS,
    "members": {"type": "boolean"},
    "url": {"type": "string", "minLength": 1},
    "secret": {"type": "string", "minLength": 1},
}
_SHAPE = Draft202012Validator(
    {"type": "object", "required": ["form", "groups"], "properties": dict(_FIELDS)}
)
_ONLY = {
    "mail": {"to", "members"},
    "webhook": {"url", "secret"},
    "slack": {"url"},
    "teams": {"url"},
}


class InvalidChannels(Exception):
    """The channels cannot be used as written; one line for each fault."""

    def __init__(self, faults: list[Fault]) -> None:
        super().__init__("\n".join(str(fault) for fault in faults))
        self.faults = faults


class _Wrong(Exception):
    def __init__(self, at: str, reason: str) -> None:
        super().__init__(reason)
        self.at = at


@dataclass(frozen=True, slots=True)
class Channel:
    """One way out. `url` and `secret` are secrets: they are in no repr, page or log."""

    name: str
    form: str
    groups: frozenset[str]
    to: tuple[str, ...] = ()
    members: bool = False
    url: str = field(default="", repr=False)
    secret: str = field(default="", repr=False)

    def takes(self, groups: Collection[str]) -> bool:
        """Whether what concerns these groups goes out here."""
        return EVERYBODY in self.groups or not self.groups.isdisjoint(groups)

    @property
    def where(self) -> str:
        """Its goal as people may read it: a host, never the path that is the secret."""
        return urlsplit(self.url).hostname or self.name


def read(path: str, environ: Mapping[str, str] = os.environ) -> list[Channel]:
    """The channels of a file, in its order. Raises InvalidChannels with every fault."""
    try:
        text = Path(path).read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidChannels([Fault(path, f"cannot be read: {error}")]) from None
    return parsed(text, path, environ)


def parsed(text: str, name: str, environ: Mapping[str, str] = os.environ) -> list[Channel]:
    """The channels in `text`; `name` is what faults call the file."""
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise InvalidChannels([Fault(f"{name}:{syntax_line(error, text)}", str(error))]) from None
    lines = Lines(text)
    faults = [
        (lines.of((key,)), f"unknown table {key!r}; write [channel.NAME]")
        for key in document.keys() - {"channel"}
    ]
    tables = document.get("channel", {})
    if not isinstance(tables, dict) or not all(isinstance(one, dict) for one in tables.values()):
        faults.append((lines.of(("channel",)), "write [channel.NAME], one table a channel"))
        tables = {}
    found = []
    for key, written in tables.items():
        wrong = [*_shape_faults(key, written)]
        if not wrong:
            try:
                found.append(_built(key, written, environ))
            except _Wrong as fault:
                wrong.append(fault)
        faults += [(lines.of(("channel", key, one.at)), f"{key}: {one}") for one in wrong]
    if faults:
        raise InvalidChannels([Fault(f"{name}:{line}", told) for line, told in sorted(faults)])
    return found


def _shape_faults(key: str, written: dict[str, Any]) -> Iterator[_Wrong]:
    if not _NAME.match(key):
        yield _Wrong("", "a channel's name has letters, digits, '-', '_' and '.'")
    for unknown in sorted(written.keys() - _FIELDS.keys()):
        yield _Wrong(unknown, f"unknown field {unknown!r}; known are {', '.join(_FIELDS)}")
    for error in _SHAPE.iter_errors(written):
        at = str(error.absolute_path[0]) if error.absolute_path else ""
        # Without the value: it may be a secret in the wrong place.
        yield _Wrong(at, f"{at}: {_reason(error)}" if at else error.message)
    form = written.get("form")
    if form in FORMS:
        others = {"to", "members", "url", "secret"} - _ONLY[form]
        for field_name in sorted(others & written.keys()):
            yield _Wrong(field_name, f"{field_name!r} means nothing for the form {form}")


def _reason(error: Any) -> str:
    if error.validator == "type":
        return f"must be {error.validator_value}"
    return (
        f"must be one of {', '.join(FORMS)}" if error.validator == "enum" else "must not be empty"
    )


def _built(key: str, written: Mapping[str, Any], environ: Mapping[str, str]) -> Channel:
    groups = frozenset(written["groups"])
    if written["form"] == "mail":
        to = tuple(written.get("to", ()))
        members = bool(written.get("members", False))
        _check_mail(to, members=members)
        return Channel(key, "mail", groups, to, members)
    url = _address(written, environ)
    secret = _signing_secret(written, environ) if written["form"] == "webhook" else ""
    return Channel(key, written["form"], groups, url=url, secret=secret)


def _check_mail(to: tuple[str, ...], *, members: bool) -> None:
    if bool(to) == members:
        raise _Wrong("form", "a mail needs either `to` (addresses) or `members = true`")
    for address in to:
        try:
            validate_email(address)
        except ValidationError:
            raise _Wrong("to", f"{address!r} is no mail address") from None
    if not settings.SAGA_MAIL_FROM:
        raise _Wrong("form", "SAGA_MAIL_FROM is not set: a mail needs a sender")


def _address(written: Mapping[str, Any], environ: Mapping[str, str]) -> str:
    told = written.get("url")
    if told is None:
        raise _Wrong("form", f"the form {written['form']} needs a `url`")
    named = _ENV.match(told)
    if named is None and written["form"] != "webhook":
        raise _Wrong("url", 'this address is itself a secret: write "env:NAME" and put it there')
    url = _from_environment("url", named[1], environ) if named else told
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname or not url.isprintable():
        raise _Wrong("url", "this is not an http or https address")
    return url


def _signing_secret(written: Mapping[str, Any], environ: Mapping[str, str]) -> str:
    named = _ENV.match(written.get("secret", ""))
    if named is None:
        raise _Wrong("secret", 'a webhook is signed: write secret = "env:NAME" (whsec_… in base64)')
    secret = _from_environment("secret", named[1], environ)
    if not _is_signing_secret(secret):
        raise _Wrong("secret", f"{named[1]} is no signing secret: whsec_, then 24 to 64 bytes")
    return secret


def _is_signing_secret(text: str) -> bool:
    """As Standard Webhooks has it; the library itself would take nearly any text."""
    try:
        key = base64.b64decode(text.removeprefix("whsec_"), validate=True)
    except ValueError:
        return False
    return text.startswith("whsec_") and 24 <= len(key) <= 64


def _from_environment(at: str, variable: str, environ: Mapping[str, str]) -> str:
    value = environ.get(variable, "").strip()
    if not value:
        raise _Wrong(at, f"the environment variable {variable} is not set")
    know(value)
    return value


@cache
def channels() -> Mapping[str, Channel]:
    """The channels of this process by name; read on first use and kept, as tools are."""
    path = settings.SAGA_CHANNELS
    return {channel.name: channel for channel in read(path)} if path else {}
