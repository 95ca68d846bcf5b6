"""What each form looks like to its receiver, and which channel files stop the start."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from ledger import letters
from ledger.channels import InvalidChannels, parsed
from saga_console.environment import BadSetting
from saga_console.home import BASE_DIR
from saga_console.mailserver import mail_server
from tests.postcast import SECRET
from tests.running import clean_env

HOSTILE = "<!channel> *bold* [click](https://evil.example) & \u202efdp.exe\x00\nApproved: yes"


def content(**more: Any) -> letters.Content:
    told: dict[str, Any] = {
        "type": "approval.requested",
        "at": "2030-01-01T12:00:00Z",
        "title": f"Waiting for your answer: {HOSTILE}",
        "facts": [("Agent", "billing"), ("The agent says", HOSTILE), ("Long", "x" * 9000)],
        "url": "https://console.example.org/approvals/1/",
        "data": {"reason": HOSTILE},
    }
    return letters.Content(**(told | more))


def strings(node: Any) -> list[str]:
    """Every text in a payload."""
    if isinstance(node, str):
        return [node]
    inner = node.values() if isinstance(node, dict) else node if isinstance(node, list) else ()
    return [text for one in inner for text in strings(one)]


@pytest.mark.parametrize("form", [letters.slack, letters.teams])
def test_nothing_invisible_leaves_for_people(form: Any) -> None:
    told = json.loads(json.dumps(form(content())))
    text = "\n".join(strings(told))
    assert "\u202e" not in text
    assert "\x00" not in text
    assert "[U+202E]" in text
    assert "[U+0000]" in text


def test_slack_takes_foreign_text_as_plain_text_within_its_limits() -> None:
    """Limits and objects as docs.slack.dev has them for Block Kit."""
    told = letters.slack(content(facts=[(f"Fact {n}", HOSTILE * 50) for n in range(23)]))
    assert told["text"].startswith("Waiting for your answer: &lt;!channel&gt;")
    assert "<" not in told["text"]
    header, *sections, actions = told["blocks"]
    assert header["type"] == "header"
    assert len(header["text"]["text"]) <= 150
    assert [len(section["fields"]) for section in sections] == [10, 10, 3]
    for section in sections:
        for field in section["fields"]:
            assert (field["type"], field["emoji"]) == ("plain_text", False)
            assert 0 < len(field["text"]) <= 2000
    (button,) = actions["elements"]
    assert button["type"] == "button"
    assert button["url"] == "https://console.example.org/approvals/1/"
    # A button with an action would send a decision back: this one is a link and nothing else.
    assert button.keys() == {"type", "text", "url"}


def test_teams_takes_foreign_text_where_no_markdown_is_read() -> None:
    """The envelope of a Teams workflow, and one Adaptive Card with a link."""
    told = letters.teams(content())
    assert told["type"] == "message"
    (attachment,) = told["attachments"]
    assert attachment["contentType"] == "application/vnd.microsoft.card.adaptive"
    card = attachment["content"]
    assert (card["type"], card["version"]) == ("AdaptiveCard", "1.4")
    for block in card["body"]:
        assert block["type"] == "RichTextBlock"
        assert [inline["type"] for inline in block["inlines"]] == ["TextRun"]
        assert block["inlines"][0]["text"]
    (action,) = card["actions"]
    assert action == {
        "type": "Action.OpenUrl",
        "title": "Read and decide",
        "url": "https://console.example.org/approvals/1/",
    }
    assert len(json.dumps(told)) < 28_000


def test_a_value_in_a_mail_cannot_pretend_to_be_a_line_of_ours() -> None:
    mail = letters.mail(content())
    assert "\n" not in mail.subject
    assert len(mail.subject) <= 180
    assert "\n    Approved: yes\n" in mail.text
    assert "\nApproved: yes" not in mail.text


def test_what_is_cut_says_how_much() -> None:
    for text in (letters.mail(content()).text, json.dumps(letters.slack(content()))):
        assert "7,500 more on the page" in text


def test_a_webhook_has_the_shape_that_the_standard_recommends() -> None:
    assert letters.webhook(content()) == {
        "type": "approval.requested",
        "timestamp": "2030-01-01T12:00:00Z",
        "data": {"reason": HOSTILE},
    }


def test_content_comes_back_as_it_was_kept() -> None:
    assert letters.Content.of(json.loads(json.dumps(content().as_json()))) == content()


GOOD = """
[channel.desk]
form = "mail"
groups = ["approvers"]
to = ["desk@example.org"]

[channel.audit]
form = "webhook"
groups = ["*"]
url = "https://audit.example.org/hook"
secret = "env:KEY"
[channel.chat]
form = "slack"
groups = ["oncall", "approvers"]
url = "env:CHAT"
"""
ENVIRON = {"KEY": SECRET, "CHAT": "https://hooks.slack.example/services/T0/B0/verysecret"}


def test_a_good_file_is_read(settings: Any) -> None:
    settings.SAGA_MAIL_FROM = "console@example.org"
    desk, audit, chat = parsed(GOOD, "channels.toml", ENVIRON)
    assert desk.takes({"approvers"})
    assert not desk.takes({"oncall"})
    assert audit.takes({"anything"})
    assert chat.where == "hooks.slack.example"
    assert "verysecret" not in repr(chat)
    assert SECRET not in repr(audit)


@pytest.mark.parametrize(
    ("line", "before", "after", "reason"),
    [
        (3, 'form = "mail"', 'form = "pigeon"', "must be one of mail, webhook, slack, teams"),
        (4, 'groups = ["approvers"]\n', "groups = []\n", "must not be empty"),
        (2, 'groups = ["approvers"]\n', "", "'groups' is a required property"),
        (5, "desk@example.org", "desk", "no mail address"),
        (5, 'to = ["desk@example.org"]', 'too = ["desk@example.org"]', "unknown field 'too'"),
        (3, 'to = ["desk@example.org"]', "", "either `to` (addresses) or `members = true`"),
        (5, 'to = ["desk@example.org"]', 'url = "https://a.example"', "means nothing for the form"),
        (10, "https://audit.example.org/hook", "ftp://audit.example.org", "not an http or https"),
        (11, "env:KEY", SECRET, 'write secret = "env:NAME"'),
        (11, "env:KEY", "env:MISSING", "environment variable MISSING is not set"),
        (11, "env:KEY", "env:CHAT", "CHAT is no signing secret"),
        (15, "env:CHAT", ENVIRON["CHAT"], "this address is itself a secret"),
        (15, 'url = "env:CHAT"', 'url = "env:CHAT"\nurl = 1', "Cannot overwrite"),
        (2, "[channel.desk]", '[channel."a:b"]', "a channel's name has letters"),
        (1, "\n[channel.desk]", "\n[channels.x]\n[channel.desk]", "unknown table 'channels'"),
    ],
)
def test_a_wrong_file_names_the_line_and_the_reason(
    settings: Any, line: int, before: str, after: str, reason: str
) -> None:
    settings.SAGA_MAIL_FROM = "console@example.org"
    assert before in GOOD
    with pytest.raises(InvalidChannels) as raised:
        parsed(GOOD.replace(before, after), "channels.toml", ENVIRON)
    told = str(raised.value)
    assert reason in told
    assert "verysecret" not in told
    assert SECRET not in told
    if reason not in {"Cannot overwrite", "unknown table 'channels'"}:
        assert any(one.startswith(f"channels.toml:{line}: ") for one in told.splitlines()), told


def started(tmp_path: Path, **environ: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "manage.py", "check"],
        cwd=BASE_DIR,
        env=clean_env(tmp_path / "home", **environ),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_a_wrong_channel_a_wrong_host_and_a_missing_server_stop_the_start(tmp_path: Path) -> None:
    path = tmp_path / "channels.toml"
    path.write_text('[channel.desk]\nform = "pigeon"\ngroups = ["*"]\n')
    refused = started(tmp_path, SAGA_CHANNELS=str(path))
    assert refused.returncode == 1
    assert f"{path}:2: desk: form: must be one of" in refused.stderr
    path.write_text('[channel.desk]\nform = "mail"\ngroups = ["*"]\nmembers = true\n')
    refused = started(tmp_path, SAGA_CHANNELS=str(path), SAGA_MAIL_FROM="console@example.org")
    assert (refused.returncode, refused.stderr.split(":")[0]) == (1, "SAGA_MAIL_URL")
    refused = started(tmp_path, SAGA_WEBHOOK_HOSTS="https://example.org")
    assert (refused.returncode, refused.stderr.split(":")[0]) == (1, "SAGA_WEBHOOK_HOSTS")


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        (
            "smtps://me:p%40ss@mail.example.org",
            ("mail.example.org", 465, "me", "p@ss", True, False),
        ),
        (
            "smtp+starttls://me:x@mail.example.org",
            ("mail.example.org", 587, "me", "x", False, True),
        ),
        ("smtp://localhost:2525", ("localhost", 2525, "", "", False, False)),
    ],
)
def test_a_mail_server_is_one_address(url: str, expected: tuple[Any, ...]) -> None:
    server = mail_server("SAGA_MAIL_URL", url)
    told = (server.host, server.port, server.user, server.password, server.tls, server.starttls)
    assert told == expected
    assert "p@ss" not in repr(server)


@pytest.mark.parametrize(
    "url",
    ["mail.example.org", "http://mail.example.org", "smtp://", "smtp://a:99999", "smtp://a/b"],
)
def test_a_wrong_mail_server_stops_the_start(url: str) -> None:
    with pytest.raises(BadSetting, match="SAGA_MAIL_URL"):
        mail_server("SAGA_MAIL_URL", url)


def test_a_password_is_never_sent_in_clear() -> None:
    with pytest.raises(BadSetting, match="over TLS only") as raised:
        mail_server("SAGA_MAIL_URL", "smtp://me:hushhush@mail.example.org")
    assert "hushhush" not in str(raised.value)
