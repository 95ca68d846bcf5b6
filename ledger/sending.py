"""One try to send one message: by mail through Django's backend, or as one POST.

Calls out, so it is never called inside a transaction, nor from a web request. No redirect is
followed, and a webhook that an agent named goes to the address that was checked, not to what
a second look-up would say.
"""

from __future__ import annotations

import json
import smtplib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import parseaddr
from typing import Any
from urllib.parse import urlsplit

import httpx
from django.conf import settings
from django.core.mail import EmailMessage, get_connection
from standardwebhooks.webhooks import Webhook

from ledger import letters, webhosts
from ledger.masking import redact
from ledger.tools.client import send
from ledger.tools.verdicts import retry_after_s, snippet

# A receiver that needs longer is asked again later: it must not hold others up.
TIMEOUT_S = 10.0
# The start of what a mail server gave as its reason.
_MOST_OF_AN_ANSWER = 300


@dataclass(frozen=True, slots=True)
class Envelope:
    """Everything that one try needs. `id` is the same on every try: receivers dedupe by it.

    `allowed` is set when somebody else than the operator named `url`. `answers` is the id of
    the message that this one follows up, or "".
    """

    id: str
    form: str
    content: letters.Content
    recipients: Sequence[str] = ()
    url: str = field(default="", repr=False)
    secret: str = field(default="", repr=False)
    allowed: webhosts.Hosts | None = None
    answers: str = ""


@dataclass(frozen=True, slots=True)
class Sent:
    """Its receiver took it."""


@dataclass(frozen=True, slots=True)
class NotSent:
    """It was not taken, or nobody knows. `again`: another try may do better."""

    why: str
    again: bool = True
    retry_after_s: float | None = None


def deliver(envelope: Envelope) -> Sent | NotSent:
    """One try. Never raises: whatever goes wrong is the answer, without a secret in it."""
    try:
        outcome = _mail(envelope) if envelope.form == "mail" else _post(envelope)
    except Exception as error:
        outcome = NotSent(f"{type(error).__name__}: {error}")
    if isinstance(outcome, Sent):
        return outcome
    why: str = redact(outcome.why)
    return NotSent(why, outcome.again, outcome.retry_after_s)


def _mail(envelope: Envelope) -> Sent | NotSent:
    told = letters.mail(envelope.content)
    domain = parseaddr(settings.SAGA_MAIL_FROM)[1].rpartition("@")[2]
    headers = {"Message-ID": f"<{envelope.id}@{domain}>", "Auto-Submitted": "auto-generated"}
    if envelope.answers:
        headers["In-Reply-To"] = headers["References"] = f"<{envelope.answers}@{domain}>"
    mail = EmailMessage(
        told.subject,
        told.text,
        settings.SAGA_MAIL_FROM,
        list(envelope.recipients),
        connection=get_connection(timeout=TIMEOUT_S),
        headers=headers,
    )
    try:
        mail.send()
    except smtplib.SMTPRecipientsRefused as error:
        codes = [code for code, _ in error.recipients.values()]
        said = "; ".join(f"{who}: {code}" for who, (code, _) in error.recipients.items())
        return NotSent(f"the mail server refused {said}", again=any(code < 500 for code in codes))
    except (smtplib.SMTPSenderRefused, smtplib.SMTPDataError) as error:
        return NotSent(_smtp(error), again=error.smtp_code < 500)
    except smtplib.SMTPResponseException as error:
        return NotSent(_smtp(error))
    return Sent()


def _smtp(error: smtplib.SMTPResponseException) -> str:
    said = error.smtp_error
    text = said.decode("utf-8", "replace") if isinstance(said, bytes) else str(said)
    return f"the mail server said {error.smtp_code} {text[:_MOST_OF_AN_ANSWER]}"


def _post(envelope: Envelope) -> Sent | NotSent:
    body = json.dumps(_body(envelope), ensure_ascii=False, separators=(",", ":"))
    try:
        request = _request(envelope, body)
    except webhosts.NotAllowed as error:
        return NotSent(str(error), again=False)
    try:
        answer = send(request, timeout_s=TIMEOUT_S)
    except httpx.TransportError as error:
        return NotSent(f"no answer: {type(error).__name__}: {error}")
    if 200 <= answer.status < 300:
        return Sent()
    why = f"it answered {answer.status} {snippet(answer)}".strip()
    if 300 <= answer.status < 400:
        return NotSent(f"{why}: redirects are not followed")
    wait = retry_after_s(answer, datetime.now(UTC))
    # Standard Webhooks: every refusal may be passing, but 410 says "never again".
    return NotSent(why, again=answer.status != 410, retry_after_s=wait)


def _body(envelope: Envelope) -> Mapping[str, Any]:
    match envelope.form:
        case "slack":
            return letters.slack(envelope.content)
        case "teams":
            return letters.teams(envelope.content)
    return letters.webhook(envelope.content)


def _request(envelope: Envelope, body: str) -> httpx.Request:
    """The POST. Raises NotAllowed; OSError when the name leads nowhere."""
    headers = {
        "Content-Type": "application/json",
        "User-Agent": "saga-console",
        "Accept-Encoding": "identity",
    }
    if envelope.secret:
        now = datetime.now(UTC)
        headers["webhook-id"] = envelope.id
        headers["webhook-timestamp"] = str(int(now.timestamp()))
        headers["webhook-signature"] = Webhook(envelope.secret).sign(envelope.id, now, body)
    extensions: dict[str, Any] = {}
    url = httpx.URL(envelope.url)
    if envelope.allowed is not None:
        address = webhosts.resolve(envelope.url, envelope.allowed)
        headers["Host"] = url.netloc.decode("ascii")
        extensions["sni_hostname"] = urlsplit(envelope.url).hostname
        url = url.copy_with(host=address)
    return httpx.Request("POST", url, headers=headers, content=body.encode(), extensions=extensions)
