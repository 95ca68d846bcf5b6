"""No case is lost: each that the main job must hold is named by a test that states it."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

TESTS = Path(__file__).parent
# Identity and the API, and what goes with them from the cases about approvals and queues.
CASES = (
    *("A9", "C20", "C79", "C80", "C81", "C82", "C86", "C89", "C90", "C91", "C92", "C93"),
    # The yes is to exactly this; two people, two tabs, two clicks; rejected is not executed.
    *("A1", "A2", "A3", "A6", "A12", "A13", "A14", "A17", "B1", "B3", "B7", "B9", "B11", "B12"),
    *("B14", "C1", "C4", "C5", "C8", "C10"),
    *("C94", "C95", "C98", "C100", "C101", "C103", "H1", "H3", "H5", "H8", "H9"),
    # Recovery, dead letters and the way back.
    *("C06", "C08", "C10", "C14", "C17", "C55", "C58", "C59", "C60", "C62", "C63", "C65", "C66"),
    *("C69", "C70", "C72", "C73", "C75", "C76", "E8", "E10", "H16", "I1", "I2", "I4", "I5"),
    *("C01", "C03", "C19", "C27", "C28", "C30", "C33", "C36", "C38", "C40", "C42", "C47", "C50"),
    *("C51", "C53", "E1", "E4", "E11", "E14", "H14"),
    # Retention and versions.
    *("P24", "C111", "C113"),
)
# The rows of the table of measured JSON vectors.
VECTORS = (
    "1 / 1.0 / 1e0",
    "-0 / -0.0",
    "0.10",
    "1e400",
    "NaN",
    "9007199254740993",
    "5000-digit int",
    "dup keys",
    "lone surrogate",
    "NUL",
    "NFC vs NFD",
    "nesting 100 k",
    'dict {1, "1"}',
    "key order U+FB33 vs U+1F600",
)


@cache
def stated() -> str:
    """The docstrings of all test functions: a case named elsewhere is not a case tested."""
    trees = (ast.parse(file.read_text(encoding="utf-8")) for file in TESTS.glob("test_*.py"))
    tests = (
        node
        for tree in trees
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")
    )
    return "\n".join(" ".join((ast.get_docstring(test) or "").split()) for test in tests)


@pytest.mark.parametrize("case", CASES)
def test_each_case_is_named_by_a_test_that_states_it(case: str) -> None:
    assert re.search(rf"\b{case}\b", stated()), f"no test names {case} in its docstring"


@pytest.mark.parametrize("vector", VECTORS)
def test_each_measured_vector_is_named_by_a_test_that_states_it(vector: str) -> None:
    assert vector in stated(), f"no test names the vector {vector} in its docstring"
