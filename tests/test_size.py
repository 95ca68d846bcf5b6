"""One noun per module, one screen per function."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from saga_console.home import BASE_DIR

MODULE_LINES = 300
FUNCTION_STATEMENTS = 30
_SOURCES = ("saga_console", "approvals", "ledger", "bench")


def modules() -> list[Path]:
    found = [path for name in _SOURCES for path in (BASE_DIR / name).rglob("*.py")]
    return sorted(path for path in found if "migrations" not in path.parts)


def functions(path: Path) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node


def statements(function: ast.AST) -> int:
    own_docstring_and_itself = 1
    return sum(isinstance(node, ast.stmt) for node in ast.walk(function)) - own_docstring_and_itself


@pytest.mark.parametrize("path", modules(), ids=lambda path: str(path.relative_to(BASE_DIR)))
def test_a_module_and_its_functions_stay_readable(path: Path) -> None:
    lines = len(path.read_text(encoding="utf-8").splitlines())
    assert lines <= MODULE_LINES, f"{lines} lines: which second noun has moved in?"
    long = {f.name: statements(f) for f in functions(path) if statements(f) > FUNCTION_STATEMENTS}
    assert not long
