"""The tools file: what it says is what the tool is; a wrong one names line and reason."""

from __future__ import annotations

from pathlib import Path

import pytest

from ledger.states import BlastRadius, Direction, Tier
from ledger.tools.contract import Tool
from ledger.tools.faults import InvalidTools
from ledger.tools.registry import Registry, load
from ledger.tools.toolsfile import parsed

DESIGN = """\
[tools."payments.refund"]
title = "Refund a payment"
version = "1"
tier = "pivot"                      # compensatable | pivot | non_compensatable
blast_radius = "high"
effect_key = "refund:{args.payment_intent}"
resource = "payment:{args.payment_intent}"
timeout_s = 10
retries = 5
downstream_idempotent = false
idempotent_for_s = 86400
settle_s = 30
[tools."payments.refund".args]      # JSON Schema (2020-12)
type = "object"
required = ["payment_intent", "amount"]
properties.payment_intent.type = "string"
properties.amount = { type = "integer", minimum = 1 }
[tools."payments.refund".execute]
method = "POST"
url = "http://127.0.0.1:8420/v1/refunds"
headers = { Authorization = "env:PAYMENTS_AUTH" }
form = { payment_intent = "{args.payment_intent}", amount = "{args.amount}" }
[tools."payments.refund".probe]
method = "GET"
url = "http://127.0.0.1:8420/v1/refunds"
match = "data[?metadata.saga_key == {idempotency_key}] | [0]"
"""
ENV = {"PAYMENTS_AUTH": "Bearer sk_test_12345"}


def faults_of(text: str, environ: dict[str, str] | None = None) -> list[tuple[int, str]]:
    with pytest.raises(InvalidTools) as refused:
        parsed(text, "tools.toml", ENV if environ is None else environ)
    return [(int(f.where.rpartition(":")[2]), f.reason) for f in refused.value.faults]


def test_the_tool_of_the_design_is_read_as_written() -> None:
    (tool,) = parsed(DESIGN, "tools.toml", ENV)
    assert (tool.key, tool.title, tool.version) == ("payments.refund", "Refund a payment", "1")
    assert (tool.tier, tool.blast_radius) == (Tier.PIVOT, BlastRadius.HIGH)
    assert (tool.timeout_s, tool.retries, tool.settle_s) == (10, 5, 30)
    assert (tool.downstream_idempotent, tool.idempotent_for_s) == (False, 86400)
    assert tool.can_probe(Direction.FORWARD)
    assert not tool.can_compensate
    assert not tool.can_correct
    assert tool.effect_key_for({"payment_intent": "pi_1"}) == "refund:pi_1"
    assert tool.resource_for({"payment_intent": "pi_1"}) == "payment:pi_1"


def test_every_default_is_written_into_the_definition() -> None:
    short = "\n".join(
        line
        for line in DESIGN.splitlines()
        if not line.startswith(("timeout", "retries", "downstream", "idempotent", "settle"))
    )
    (tool,), (whole,) = parsed(short, "t", ENV), parsed(DESIGN, "t", ENV)
    assert tool.digest == whole.digest
    assert tool.definition == whole.definition


@pytest.mark.parametrize(
    ("old", "new", "changes"),
    [
        ('title = "Refund a payment"', 'title = "Refund"', False),
        ("settle_s = 30", 'settle_s = 30\ncompatible_with = ["0"]', False),
        ("timeout_s = 10", "timeout_s = 10.0", False),
        ("minimum = 1", "minimum = 2", True),
        ("/v1/refunds", "/v2/refunds", True),
        ("retries = 5", "retries = 6", True),
    ],
)
def test_the_digest_changes_with_what_can_change_a_call(old: str, new: str, changes: bool) -> None:
    (before,), (after,) = parsed(DESIGN, "t", ENV), parsed(DESIGN.replace(old, new), "t", ENV)
    assert (before.digest != after.digest) == changes
    assert after.is_compatible_with(before.version, before.digest) == (
        not changes or "compatible" in new
    )


def test_secrets_are_in_no_snapshot_digest_or_repr() -> None:
    (tool,) = parsed(DESIGN, "t", ENV)
    (other,) = parsed(DESIGN, "t", {"PAYMENTS_AUTH": "Bearer another"})
    assert tool.digest == other.digest
    assert tool.definition["execute"]["headers"] == {"Authorization": "env:PAYMENTS_AUTH"}
    assert "sk_test" not in repr((tool, tool.definition, tool.target, Registry([tool])))


def test_an_old_tool_is_rebuilt_from_its_snapshot() -> None:
    (tool,) = parsed(DESIGN, "t", ENV)
    rebuilt = Registry([], ENV).rebuild(tool.definition)
    assert isinstance(rebuilt, Tool)
    assert rebuilt == tool
    assert rebuilt.digest == tool.digest


@pytest.mark.parametrize("definition", [{}, {"source": "python"}, {"source": "file", "key": "x"}])
def test_what_cannot_be_rebuilt_is_none(definition: dict[str, str]) -> None:
    assert Registry([], ENV).rebuild(definition) is None


def test_a_snapshot_whose_secret_is_gone_is_not_rebuilt() -> None:
    (tool,) = parsed(DESIGN, "t", ENV)
    assert Registry([], {}).rebuild(tool.definition) is None


@pytest.mark.parametrize(
    ("old", "new", "line", "reason"),
    [
        ('tier = "pivot"', 'teir = "pivot"', 1, "'tier' is a required"),
        ('tier = "pivot"', 'tier = "pivot"\nteir = 1', 5, "did you mean 'tier'"),
        ('tier = "pivot"', 'tier = "none"', 4, "is not one of"),
        ('tier = "pivot"', 'tier = "compensatable"', 4, "needs compensate"),
        ("retries = 5", 'retries = "5"', 9, "must be integer"),
        ("retries = 5", "retries = -1", 9, "minimum"),
        ("timeout_s = 10", "timeout_s = 0", 8, "timeout_s"),
        ("settle_s = 30", "settle_s = nan", 12, "finite"),
        ("minimum = 1", 'title = "\\u0000"', 17, "NUL"),
        ("minimum = 1", "default = 1979-05-27", 17, "in quotes"),
        ("minimum = 1", "maximum = 9007199254740993", 17, "2^53"),
        ("blast_radius =", "blast_radius = \nx =", 5, "Invalid value"),
        ('{args.payment_intent}"\nres', '{args.payment}"\nres', 6, "names no property"),
        ("refund:{args.payment_intent}", "refund:{saga.id}", 6, "only {args.…}"),
        ("refund:{args.payment_intent}", " ", 6, "every step the same"),
        ("payment:{args.payment_intent}", "{args.amount}{args.payment_intent}", 7, "a mark"),
        ('type = "object"', 'type = "array"', 14, "always an object"),
        ('"string"', '"sting"', 16, "not a JSON Schema"),
        ("minimum = 1", 'minimum = "1"', 17, "not a JSON Schema"),
        ('type = "string"', '"$ref" = "http://example.com/x"', 16, "not local"),
        ('type = "string"', '"$ref" = "#/properties/payment_intent"', 16, "leads to itself"),
        ('type = "object"', '"$schema" = "http://json-schema.org/draft-07/schema#"', 14, "2020-12"),
        ('type = "string"', '"$ref" = "#/$defs/no"', 16, "leads nowhere"),
        ('method = "POST"', 'method = "SEND"', 19, "is not one of"),
        ('method = "GET"', 'method = "DELETE"', 24, "is not one of"),
        ('http://127.0.0.1:8420/v1/refunds"\nh', 'ftp://x/"\nh', 20, "http://"),
        ('http://127.0.0.1:8420/v1/refunds"\nh', 'http://{args.amount}/"\nh', 20, "host"),
        ('http://127.0.0.1:8420/v1/refunds"\nh', '{args.amount}://x/"\nh', 20, "http://"),
        ('http://127.0.0.1:8420/v1/refunds"\nh', 'http://u:p@x/"\nh', 20, "credentials"),
        ('http://127.0.0.1:8420/v1/refunds"\nh', 'http://x:99999/"\nh', 20, "not a URL"),
        ('http://127.0.0.1:8420/v1/refunds"\nh', 'http:///x"\nh', 20, "host"),
        ('"env:PAYMENTS_AUTH"', '"Bearer abc"', 21, "carries a secret"),
        ('"env:PAYMENTS_AUTH"', '"env:NOT_SET"', 21, "NOT_SET is not set"),
        ("Authorization", "Idempotency-Key", 21, "set by the console"),
        ("Authorization", '"Bad Header"', 21, "does not match"),
        ('amount = "{args.amount}"', 'amount = "{args.amuont}"', 22, "names no property"),
        ('amount = "{args.amount}"', 'amount = "{foo.bar}"', 22, "is unknown"),
        ('amount = "{args.amount}"', 'amount = "{result.id}"', 22, "no recorded result"),
        ('amount = "{args.amount}"', 'amount = "{saga.secret}"', 22, "is unknown"),
        ('amount = "{args.amount}"', 'amount = "env:PAYMENTS_AUTH"', 22, "whole header"),
        ("form = {", "json = {}\nform = {", 23, "exclude each other"),
        ('match = "data[', 'match = "data[[', 26, "not a JMESPath"),
        ("match =", "form = {}\nmacth =", 27, "did you mean 'match'"),
    ],
)
def test_a_wrong_file_names_the_line_and_the_reason(
    old: str, new: str, line: int, reason: str
) -> None:
    assert old in DESIGN
    faults = faults_of(DESIGN.replace(old, new, 1))
    assert any(at == line and reason in text for at, text in faults), faults


def test_a_secret_in_the_wrong_place_is_not_repeated() -> None:
    text = DESIGN.replace('{ Authorization = "env:PAYMENTS_AUTH" }', '"Bearer sk_live_1"')
    assert faults_of(text) == [(21, "payments.refund.execute.headers: must be object")]


def test_a_missing_secret_names_the_variable_and_its_line() -> None:
    assert faults_of(DESIGN, {}) == [
        (21, "payments.refund: the environment variable PAYMENTS_AUTH is not set")
    ]


def test_all_faults_are_told_at_once_in_order() -> None:
    text = (
        DESIGN.replace('"{args.amount}"', '"{args.x}"')
        .replace("refund:{args.payment_intent}", "refund:{args.y}")
        .replace("| [0]", "| [")
    )
    second = '[tools.b]\nversion = 1\ncolor = "red"\n'
    assert [line for line, _ in faults_of(text + second)] == [6, 22, 26, *[27] * 4, 28, 29]


def test_lines_are_found_through_multi_line_values() -> None:
    text = DESIGN.replace(
        "form = { payment_intent",
        '# form = "{no}"\njson.lines = [\n  "a = 1", # x\n  """\n[tools.z]\n  {args.x}""",\n'
        "]\n#form = { payment_intent",
    ).replace("| [0]", "| [")
    assert [line for line, _ in faults_of(text)] == [23, 33]


@pytest.mark.parametrize("text", ["[tools", 'a = "', "[tools.x]\nversion = 1\nversion = 2\n"])
def test_text_that_is_not_toml_has_a_line(text: str) -> None:
    assert faults_of(text)[0][0] >= 1


@pytest.mark.parametrize("text", ["tools = 1", "[tool.x]", '[tools."a b"]', "tools.x = 1"])
def test_a_file_of_another_shape_is_refused(text: str) -> None:
    assert faults_of(text)


def test_a_pivot_with_compensate_is_refused() -> None:
    more = '[tools."payments.refund".compensate]\nmethod = "POST"\nurl = "http://x/"\n'
    assert any("must not have compensate" in reason for _, reason in faults_of(DESIGN + more))


def test_a_correction_that_would_never_run_is_refused() -> None:
    undo = 'method = "POST"\nurl = "http://x/{result.id}"\n'
    text = DESIGN.replace('"pivot"', '"compensatable"')
    text += f'[tools."payments.refund".compensate]\n{undo}'
    assert parsed(text, "t", ENV)[0].can_compensate
    wrong = faults_of(text + f'[tools."payments.refund".correct]\n{undo}')
    assert any("never run" in reason for _, reason in wrong)


def test_each_direction_may_have_its_own_probe() -> None:
    text = DESIGN.replace('"pivot"', '"compensatable"') + (
        '[tools."payments.refund".compensate]\nmethod = "DELETE"\nurl = "http://x/{result.id}"\n'
        'probe = { method = "GET", url = "http://x/{result.id}", match = "gone" }\n'
    )
    (tool,) = parsed(text, "t", ENV)
    assert tool.can_probe(Direction.COMPENSATE)
    assert not tool.can_probe(Direction.CORRECT)


def test_a_file_that_is_not_there_says_so(tmp_path: Path) -> None:
    with pytest.raises(InvalidTools, match="cannot be read"):
        load(tmp_path / "no.toml")


def test_an_empty_file_has_no_tools(tmp_path: Path) -> None:
    (tmp_path / "tools.toml").write_text("# none yet\n")
    assert load(tmp_path / "tools.toml").all() == []


def test_two_tools_under_one_key_are_refused() -> None:
    tools = parsed(DESIGN, "t", ENV) + parsed(DESIGN.replace("= 5", "= 6"), "t", ENV)
    with pytest.raises(InvalidTools, match="declared twice"):
        Registry(tools)
