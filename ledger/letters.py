"""What one message says, in each form that leaves: mail, webhook, Slack, Teams. Pure.

A `Content` is masked already (ledger/masking.py). Here every odd character is made visible
for the forms that people read, and everything foreign goes where no markup is read: plain
mail, Slack's `plain_text`, Teams' `TextRun`. Nothing in a message decides: it has one link,
to the page.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

from ledger.oddities import in_plain

# Slack refuses a message whose parts are longer (docs.slack.dev, Block Kit): header 150,
# section text 3,000, field 2,000, ten fields a section, fifty blocks.
_SLACK_HEADER, _SLACK_FIELD, _SLACK_FIELDS = 150, 2000, 10
# One fact in a message. The page shows all of it; a cut one says how much is missing.
_MOST_OF_A_FACT = 1500
_SUBJECT = 180


@dataclass(frozen=True, slots=True)
class Content:
    """A message before it has a form. `data` is for machines, the rest for people.

    `type` and `at` (RFC 3339) name the event; `url` leads to the page, and may be "".
    """

    type: str
    at: str
    title: str
    facts: Sequence[tuple[str, str]]
    url: str
    data: Mapping[str, Any]

    def as_json(self) -> dict[str, Any]:
        """How it is stored with its message."""
        return {
            "type": self.type,
            "at": self.at,
            "title": self.title,
            "facts": [list(fact) for fact in self.facts],
            "url": self.url,
            "data": dict(self.data),
        }

    @classmethod
    def of(cls, stored: Mapping[str, Any]) -> Self:
        """The reverse of `as_json`."""
        facts = [(name, value) for name, value in stored["facts"]]
        return cls(
            stored["type"], stored["at"], stored["title"], facts, stored["url"], stored["data"]
        )


@dataclass(frozen=True, slots=True)
class Mail:
    """Subject and plain text; no part of it is HTML, so none of it can pretend."""

    subject: str
    text: str


def mail(content: Content) -> Mail:
    """The mail. Its lines that begin with a blank are values, whatever they say."""
    lines = [in_plain(content.title), ""]
    for name, value in content.facts:
        lines += [f"{in_plain(name)}:", *(f"    {line}" for line in _lines(value))]
    if content.url:
        lines += ["", "Read it and decide there:" if _asks(content) else "See it there:"]
        lines += [content.url, "", "Opening the link decides nothing."]
    return Mail(_cut(in_plain(content.title), _SUBJECT), "\n".join(lines) + "\n")


def webhook(content: Content) -> dict[str, Any]:
    """The body that Standard Webhooks recommends: type, timestamp, data."""
    return {"type": content.type, "timestamp": content.at, "data": dict(content.data)}


def slack(content: Content) -> dict[str, Any]:
    """A Slack message. `text` is what notifications and screen readers take."""
    title = in_plain(content.title)
    fields = [
        {
            "type": "plain_text",
            "text": _cut(f"{in_plain(name)}\n{_block(value)}", _SLACK_FIELD),
            "emoji": False,
        }
        for name, value in content.facts
    ]
    header = {"type": "plain_text", "text": _cut(title, _SLACK_HEADER), "emoji": False}
    blocks: list[dict[str, Any]] = [{"type": "header", "text": header}]
    blocks += [
        {"type": "section", "fields": fields[start : start + _SLACK_FIELDS]}
        for start in range(0, len(fields), _SLACK_FIELDS)
    ]
    if content.url:
        label = {"type": "plain_text", "text": _label(content), "emoji": False}
        button = {"type": "button", "text": label, "url": content.url}
        blocks.append({"type": "actions", "elements": [button]})
    return {"text": _slack_escaped(title), "blocks": blocks}


def _slack_escaped(text: str) -> str:
    """Slack reads these three as its own marks, `<!channel>` among them."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def teams(content: Content) -> dict[str, Any]:
    """A message for a Teams workflow: one Adaptive Card, whose TextRuns read no Markdown."""
    body = [_rich(in_plain(content.title), size="Large", weight="Bolder")]
    for name, value in content.facts:
        body.append(_rich(in_plain(name), isSubtle=True, size="Small"))
        body.append(_rich(_block(value), spacing="None"))
    card: dict[str, Any] = {
        "$schema": "http://adaptivecards.io/schemas/adaptive-card.json",
        "type": "AdaptiveCard",
        "version": "1.4",
        "body": body,
    }
    if content.url:
        card["actions"] = [{"type": "Action.OpenUrl", "title": _label(content), "url": content.url}]
    attachment = {
        "contentType": "application/vnd.microsoft.card.adaptive",
        "contentUrl": None,
        "content": card,
    }
    return {"type": "message", "attachments": [attachment]}


def _rich(text: str, *, spacing: str = "Default", **run: Any) -> dict[str, Any]:
    inline = {"type": "TextRun", "text": text, **run}
    return {"type": "RichTextBlock", "spacing": spacing, "inlines": [inline]}


def _asks(content: Content) -> bool:
    """Whether an answer of people is wanted."""
    return content.type in {"approval.requested", "approval.reminder"}


def _label(content: Content) -> str:
    return "Read and decide" if _asks(content) else "Open"


def _lines(value: str) -> list[str]:
    """Breaks of a value are kept, each line marked by its indent; other odd ones are shown."""
    return [in_plain(line) for line in _short(value).split("\n")]


def _block(value: str) -> str:
    return "\n".join(_lines(value)) or "(empty)"


def _short(value: str) -> str:
    if len(value) <= _MOST_OF_A_FACT:
        return value
    return f"{value[:_MOST_OF_A_FACT]}… ({len(value) - _MOST_OF_A_FACT:,} more on the page)"


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"
