"""docs/tools.md says what the code does: its examples load, and it names every field."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from ledger.states import Tier
from ledger.tools.fileschema import DEFAULTS, TOOL
from ledger.tools.toolsfile import parsed

DOCS = (Path(__file__).parents[1] / "docs" / "tools.md").read_text()
FIELDS = {*TOOL["properties"], *TOOL["properties"]["compensate"]["properties"], "match"}


def block(language: str) -> str:
    found = re.search(rf"```{language}\n(.*?)```", DOCS, re.DOTALL)
    assert found
    return found[1]


def test_the_example_file_loads_as_it_stands() -> None:
    (tool,) = parsed(block("toml"), "docs", {"STOCK_AUTH": "Bearer x"})
    assert tool.tier is Tier.COMPENSATABLE
    assert tool.checked_args({"order_id": "1", "sku": "s"})["count"] == 1


def test_the_python_example_is_python() -> None:
    compile(block("python"), "docs/tools.md", "exec")


@pytest.mark.parametrize("field", sorted(FIELDS))
def test_every_field_is_documented(field: str) -> None:
    assert f"`{field}`" in DOCS


@pytest.mark.parametrize("field", ["timeout_s", "retries", "idempotent_for_s", "settle_s"])
def test_the_documented_defaults_are_the_real_ones(field: str) -> None:
    assert f"| `{field}` | {DEFAULTS[field]:g} |" in DOCS
