"""Conditions in CEL: checked when they are read, bounded when they are evaluated. Pure.

The library has no limit of its own: `args.items.map(x, args.items)` over a body of a few
thousand numbers ran for a minute and a half. Its cost grows with the document, and the document
is an agent's, so it is bounded before it starts: by the size of the document and by how deep the
expression loops over it (docs/decisions/0064-cel-conditions.md has the figures).
"""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from types import ModuleType
from typing import Any

# Bytes of the document times its values, once for each loop around a loop: 5 million take
# 0.1 s at the very most on a slow machine, and a loop over a body of 40 kB is still judged.
MAX_COST = 5_000_000
# Nobody can review more than this, and a parser should not be given more.
MAX_SOURCE = 2000

# How many loops over the document a macro is. Those that build a list copy it at every element.
_LOOPS = {"all": 1, "exists": 1, "exists_one": 2, "map": 2, "filter": 2}
_FUNCTIONS = frozenset(
    {"size", "has", "contains", "startsWith", "endsWith", "matches", "type"}
    | {"int", "uint", "double", "string", "bytes", "bool", "timestamp", "duration"}
    | {f"get{part}" for part in ("FullYear", "Month", "Date", "DayOfMonth", "DayOfWeek")}
    | {f"get{part}" for part in ("DayOfYear", "Hours", "Minutes", "Seconds", "Milliseconds")}
)
_TOKEN = re.compile(
    r"""\s+ | //[^\n]*
    | (?P<text>[rRbB]{0,2}(?:\"{3}.*?\"{3} | '{3}.*?'{3} | "(?:\\.|[^"\\])*" | '(?:\\.|[^'\\])*'))
    | (?P<name>[A-Za-z_]\w*) | (?P<number>\d[\w.]*) | (?P<mark>&&|\|\||[<>=!]=|.)""",
    re.VERBOSE | re.DOTALL,
)
_OPENS = {"(": ")", "[": "]", "{": "}"}
_JOINS = frozenset({"&&", "||", "==", "!=", "<=", ">=", "<", ">", "+", "-", "*", "/", "%"})
_PARTS = _JOINS | {"?", ":", ",", "in"}

# What a variable has: the names below it, or None when that is the document's own matter.
Names = Mapping[str, frozenset[str] | None]


class CannotEvaluate(Exception):
    """The expression has no value over this document; the text says why."""


class BadExpression(ValueError):
    """The expression cannot be used; the text says why."""


@dataclass(frozen=True, slots=True)
class Expression:
    """A compiled expression. `loops`: how often it goes over the document within itself."""

    source: str
    program: Any
    loops: int

    def value(self, over: Document) -> Any:
        """Evaluate. Raises CannotEvaluate, also when it could take too long."""
        if self.loops and (cost := over.size * over.values**self.loops) > MAX_COST:
            raise CannotEvaluate(
                f"the arguments are too large for a loop over them (cost {cost:.1g}, at most "
                f"{MAX_COST:.1g})"
            )
        try:
            return self.program.execute(over.context)
        except (KeyboardInterrupt, SystemExit):
            raise
        except KeyError as error:
            raise CannotEvaluate(f"there is no {error.args[0]!r}") from None
        except BaseException as error:  # a panic below is no Exception, and no yes either
            raise CannotEvaluate(str(error).split(". Check ")[0].strip()) from None


class Document:
    """What expressions are evaluated over. Converted once, and only if one is evaluated."""

    def __init__(self, variables: Mapping[str, Any]) -> None:
        self._variables = dict(variables)

    @cached_property
    def context(self) -> Any:
        try:
            return _cel().Context(variables=self._variables)
        except Exception as error:
            raise CannotEvaluate(f"the arguments cannot be read: {error}") from None

    @cached_property
    def size(self) -> int:
        """Its length in bytes, as JSON."""
        return len(json.dumps(self._variables, ensure_ascii=False).encode())

    @cached_property
    def values(self) -> int:
        """How many values it has, containers included."""
        count, stack = 0, [self._variables]
        while stack:
            node = stack.pop()
            count += 1
            if isinstance(node, dict):
                stack.extend(node.values())
            elif isinstance(node, list):
                stack.extend(node)
        return count


@functools.cache
def _cel() -> ModuleType:
    # Only where there is a condition: the package brings a command line along, 0.3 s of it.
    import cel  # noqa: PLC0415

    return cel


@functools.cache
def compiled(source: str) -> Expression:
    """Compile, once for each text. Raises BadExpression."""
    if len(source) > MAX_SOURCE:
        raise BadExpression(f"it is longer than {MAX_SOURCE} characters")
    try:
        program = _cel().compile(source)
    except Exception as error:
        raise BadExpression(_first_line(error)) from None
    return Expression(source, program, _loops(_tokens(source)))


def faults(source: str, names: Names) -> list[str]:
    """Why this expression cannot be used over these variables; [] when it can."""
    try:
        used = compiled(source).program.references()
    except BadExpression as error:
        return [str(error)]
    tokens = _tokens(source)
    bound = {tokens[at + 3] for at in _macros(tokens) if at + 3 < len(tokens)}
    unknown = [name for name in used["variables"] if name not in names and name not in bound]
    called = [name for name in used["functions"] if name.isidentifier() and name not in _FUNCTIONS]
    found = [f"{name!r} is unknown; there are {', '.join(names)}" for name in unknown]
    found += [f"there is no function {name!r}" for name in called if not name.startswith("_")]
    return found + _below(tokens, names, bound) + _patterns(tokens)


def _first_line(error: Exception) -> str:
    text = str(error).split("ERROR: <input>:1:")[-1].splitlines()[0]
    return f"it cannot be read: column {text}" if text[:1].isdigit() else text


def _tokens(source: str) -> list[str]:
    return [found.group() for found in _TOKEN.finditer(source) if found.lastgroup]


def _macros(tokens: Sequence[str]) -> Iterator[int]:
    """Where a loop begins: the index of the dot before its name."""
    for at in range(len(tokens) - 2):
        if tokens[at] == "." and tokens[at + 1] in _LOOPS and tokens[at + 2] == "(":
            yield at


def _loops(tokens: Sequence[str]) -> int:
    """How deep the loops go. Those on what another loop gave count on top of it."""
    starts = {at + 2: _LOOPS[tokens[at + 1]] for at in _macros(tokens)}
    # For every open bracket: the deepest part before, and the part that is being read.
    deepest, here = [0], [0]
    weights = [0]
    for at, token in enumerate(tokens):
        if token in _OPENS:
            deepest.append(0)
            here.append(0)
            weights.append(starts.get(at, 0))
        elif token in _OPENS.values() and len(here) > 1:
            inside = max(deepest.pop(), here.pop())
            here[-1] += inside + weights.pop()
        elif token in _PARTS:
            deepest[-1], here[-1] = max(deepest[-1], here[-1]), 0
    return max(*deepest, *here)


def _below(tokens: Sequence[str], names: Names, bound: set[str]) -> list[str]:
    """Names that a variable does not have. A whole variable is no text to compare with."""
    found = []
    for at, name in enumerate(tokens):
        fields = names.get(name)
        after = tokens[at + 1 : at + 3]
        if fields is None or name in bound or tokens[at - 1 : at] == ["."] or after[:1] == [":"]:
            continue
        if after[:1] != ["."]:
            found.append(f"{name!r} is not a text: write {name}.{min(fields, key=_nicest)}")
        elif after[1] not in fields:
            known = ", ".join(sorted(fields))
            found.append(f"{name} has no {after[1]!r}; it has {known}")
    return found


def _nicest(field: str) -> tuple[bool, str]:
    return field != "name", field


def _patterns(tokens: Sequence[str]) -> list[str]:
    """A pattern from an agent could cost what it likes: only those of the file itself."""
    calls = [at for at in range(len(tokens) - 2) if tokens[at : at + 2] == ["matches", "("]]
    if all(tokens[at + 2][-1] in "'\"" for at in calls):
        return []
    return ["the pattern of matches() must be written in quotes"]
