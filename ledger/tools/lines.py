"""Where in a TOML text a key stands. tomllib keeps no positions, and a person needs one."""

from __future__ import annotations

import re
import tomllib
from collections import Counter
from collections.abc import Iterator
from typing import Any

Path = tuple[str | int, ...]
_HEADER = re.compile(r"^\s*\[\[?(?P<name>[^\[].*?)\]\]?\s*(#.*)?$")
_SYNTAX = re.compile(r"\(at line (\d+), column \d+\)")


class Lines:
    """The line of every path of a TOML text that tomllib accepts."""

    def __init__(self, text: str) -> None:
        self._lines: dict[Path, int] = {(): 1}
        table: Path = ()
        members: Counter[Path] = Counter()
        for number, statement in _statements(text):
            if header := _header_path(statement):
                table = header
                self._lines.setdefault(header, number)
                if statement.lstrip().startswith("[["):
                    table = (*header, members[header])
                    members[header] += 1
                self._lines.setdefault(table, number)
                continue
            for path, at in _keys(statement, number):
                self._lines.setdefault((*table, *path), at)

    def of(self, path: Path) -> int:
        """The line of `path`, or of the nearest thing around it that has one."""
        while path not in self._lines:
            path = path[:-1]
        return self._lines[path]


def _statements(text: str) -> Iterator[tuple[int, str]]:
    # A statement is complete as soon as tomllib can read it alone: that settles multi-line
    # strings and arrays without a second grammar.
    pending, start = "", 0
    for number, line in enumerate(text.splitlines(), start=1):
        if not pending and (not line.strip() or line.lstrip().startswith("#")):
            continue
        start = start if pending else number
        pending += line + "\n"
        if _parsed(pending) is not None:
            yield start, pending
            pending = ""


def _parsed(text: str) -> dict[str, Any] | None:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        return None


def _header_path(statement: str) -> Path:
    found = _HEADER.match(statement)
    if not found or "\n" in statement.strip():
        return ()
    node: Any = _parsed(f"[{found['name']}]")
    path: list[str] = []
    while node:
        name, node = next(iter(node.items()))
        path.append(name)
    return tuple(path)


def _keys(statement: str, number: int) -> Iterator[tuple[Path, int]]:
    lines = statement.splitlines()

    def walk(node: Any, path: Path, first: int) -> Iterator[tuple[Path, int]]:
        members = node.items() if isinstance(node, dict) else enumerate(node)
        for name, child in members:
            at = first
            if isinstance(name, str):
                at = next((i for i in range(first, len(lines)) if name in lines[i]), first)
            yield (*path, name), number + at
            if isinstance(child, dict | list):
                yield from walk(child, (*path, name), at)

    yield from walk(_parsed(statement) or {}, (), 0)


def syntax_line(error: tomllib.TOMLDecodeError, text: str) -> int:
    """The line of a syntax error; the last line when the text ended too early."""
    found = _SYNTAX.search(str(error))
    return int(found.group(1)) if found else max(1, len(text.splitlines()))
