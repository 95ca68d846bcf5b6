"""What the environment says, read once, with an error that names the variable.

Pure but for `os.environ`: no Django, so that `manage.py` and the tests can ask early.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

_TRUE = frozenset({"1", "true", "yes", "on"})
_FALSE = frozenset({"0", "false", "no", "off"})


class BadSetting(SystemExit):
    """A setting that cannot be used. One line, exit status 1; nothing has been started."""

    def __init__(self, name: str, problem: str) -> None:
        super().__init__(f"{name}: {problem}")


def text(name: str, default: str = "") -> str:
    """The variable without surrounding blanks; an empty one counts as unset."""
    return os.environ.get(name, "").strip() or default


def number(name: str, default: int, *, at_least: int = 0) -> int:
    """A whole number, in the unit that the variable's name ends in."""
    given = text(name)
    if not given:
        return default
    try:
        value = int(given)
    except ValueError:
        raise BadSetting(name, f"a whole number is needed, not {given!r}") from None
    if value < at_least:
        raise BadSetting(name, f"must be {at_least} or more, not {value}")
    return value


def seconds(name: str, default: float, *, at_least: float = 0.0) -> float:
    """A time in seconds, fractions allowed."""
    given = text(name)
    if not given:
        return default
    try:
        value = float(given)
    except ValueError:
        raise BadSetting(name, f"seconds are needed, not {given!r}") from None
    if not at_least <= value < float("inf"):
        raise BadSetting(name, f"must be {at_least:g} or more, not {given}")
    return value


def flag(name: str, *, default: bool) -> bool:
    """One of 1/true/yes/on or 0/false/no/off, in any case."""
    given = text(name).lower()
    if not given:
        return default
    if given in _TRUE:
        return True
    if given in _FALSE:
        return False
    raise BadSetting(name, f"use 1 or 0, not {given!r}")


def words(name: str, default: Sequence[str] = ()) -> list[str]:
    """A list separated by commas; empty members are dropped."""
    given = text(name)
    if not given:
        return list(default)
    return [word.strip() for word in given.split(",") if word.strip()]


def private_folder(name: str) -> str:
    """A folder that exists and that nobody but this user can write into."""
    given = text(name)
    if not given:
        return ""
    try:
        found = Path(given).stat()
    except OSError as error:
        raise BadSetting(name, f"{given}: {error.strerror}") from None
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid() or found.st_mode & 0o022:
        raise BadSetting(name, f"{given} must be a folder that only this user can write into")
    return given


def modules(name: str) -> list[str]:
    """A list of modules separated by commas, each of which can be found."""
    given = words(name)
    for module in given:
        try:
            found = find_spec(module)
        except (ImportError, ValueError):
            found = None
        if found is None:
            raise BadSetting(name, f"there is no module {module!r}; is it on PYTHONPATH?")
    return given
