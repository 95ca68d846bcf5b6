"""The file that archived sagas leave for: written whole or not at all, verified without a database.

One JSON object a line (UTF-8), in this order:

    {"kind": "export", "format": 1, "made_at": …, "made_by": …}
    for each saga:
        {"kind": "saga", "saga": id, …}                     what a reader looks for
        {"table": "ledger_saga", "row": {…}}                its rows, as the database wrote them,
        …                                                   its chain of entries among them
        {"kind": "saga.end", "saga": id, "lines", "entries", "head_seq", "head_hash", "sha256",
            "gate_sha256"}
    {"kind": "manifest", "sagas", "entries", "lines", "heads", "sha256"}

`sha256` of a saga is over its lines of the ledger (tables `ledger_…`), each with its line feed,
`gate_sha256` over the others, and its tombstone has both. `heads` is the root over all ends of
chains, as a checkpoint's (ledger/chain.py), in the order of the file. The manifest's `sha256` is
over every byte before its line. Pure: no Django.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from ledger.chain import FIRST

FORMAT = 1
LEDGER = "ledger_"
# Stands at the end of a file's name until the whole of it is on the disk.
UNFINISHED = ".part"


class BadExport(Exception):
    """The file is not what its manifest says."""


@dataclass(slots=True)
class SagaLines:
    """One saga as an export holds it: `lines` are the text of rows, without line feeds."""

    id: str
    about: Mapping[str, Any]
    lines: Sequence[str]
    end: Mapping[str, Any] = field(default_factory=dict)

    def rows(self, table: str) -> list[dict[str, Any]]:
        """The rows of one table, in the order of the file."""
        return [json.loads(line)["row"] for line in self.lines if table_of(line) == table]

    def of_the_gate(self) -> dict[str, list[dict[str, Any]]]:
        """The rows that are not the ledger's own, by table."""
        found: dict[str, list[dict[str, Any]]] = {}
        for line in self.lines:
            if not _is_ledgers(line):
                found.setdefault(table_of(line), []).append(json.loads(line)["row"])
        return found

    def sealed(self) -> dict[str, Any]:
        """What the last line of this saga must say."""
        (saga,) = self.rows("ledger_saga")
        ours = [line for line in self.lines if _is_ledgers(line)]
        others = [line for line in self.lines if not _is_ledgers(line)]
        return {
            "kind": "saga.end",
            "saga": self.id,
            "lines": len(self.lines),
            "entries": sum(table_of(line) == "ledger_entry" for line in ours),
            "head_seq": saga["head_seq"],
            "head_hash": saga["head_hash"],
            "sha256": digest(ours),
            "gate_sha256": digest(others),
        }


# Postgres writes the members of a jsonb object the shortest name first: the table is the last.
_TABLE = re.compile(r'"table": "([a-z_]+)"}$')


def table_of(line: str) -> str:
    """Of which table a line is; '' when it is of none."""
    found = _TABLE.search(line)
    return found[1] if found else ""


def _is_ledgers(line: str) -> bool:
    return table_of(line).startswith(LEDGER)


def digest(lines: Iterable[str]) -> str:
    """SHA-256 over lines, each with its line feed; `ledger_saga_digest` has it in SQL."""
    made = hashlib.sha256()
    for line in lines:
        made.update(line.encode() + b"\n")
    return made.hexdigest()


def _text(value: Mapping[str, Any]) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


class _Heads:
    """The root over the ends of chains, one at a time: a file may hold millions."""

    def __init__(self) -> None:
        self._made = hashlib.sha256(FIRST.encode())

    def add(self, end: Mapping[str, Any]) -> None:
        self._made.update(f"\n{end['saga']} {end['head_seq']} {end['head_hash']}".encode())

    def root(self) -> str:
        return self._made.hexdigest()


class Writer:
    """Writes one export. Until `finish` the file has another name, and nobody takes it for one."""

    def __init__(self, path: Path, **about: Any) -> None:
        self.path = path
        self.unfinished = path.with_name(path.name + UNFINISHED)
        self._file = self.unfinished.open("xb")
        self._whole, self._heads = hashlib.sha256(), _Heads()
        self.size = self.lines = self.sagas = self.entries = 0
        self._write(_text({"kind": "export", "format": FORMAT, **about}))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exc: object) -> None:
        """Leave nothing half-written behind."""
        if not self._file.closed:
            self._file.close()
            self.unfinished.unlink(missing_ok=True)

    def add(self, saga: SagaLines) -> str:
        """Write one saga; its digest, which its tombstone must have."""
        end = saga.sealed()
        self._write(_text({"kind": "saga", "saga": saga.id, **saga.about}))
        for line in saga.lines:
            self._write(line)
        self._write(_text(end))
        self._heads.add(end)
        self.sagas += 1
        self.entries += end["entries"]
        return str(end["sha256"])

    def _write(self, line: str) -> None:
        raw = line.encode() + b"\n"
        self._whole.update(raw)
        self._file.write(raw)
        self.size += len(raw)
        self.lines += 1

    def finish(self) -> str:
        """Write the manifest, and return when the file is on the disk under its own name.

        The SHA-256 of the whole file.
        """
        manifest = {
            "kind": "manifest",
            "sagas": self.sagas,
            "entries": self.entries,
            "lines": self.lines,
            "heads": self._heads.root(),
            "sha256": self._whole.hexdigest(),
        }
        self._write(_text(manifest))
        self._file.flush()
        os.fsync(self._file.fileno())
        self._file.close()
        self.unfinished.rename(self.path)
        _sync_folder(self.path.parent)
        return self._whole.hexdigest()


def _sync_folder(folder: Path) -> None:
    """A new name is on the disk when its folder is."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def file_digest(path: Path) -> str:
    """SHA-256 of a whole file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def read(path: Path) -> Iterator[SagaLines]:
    """Each saga of an export, checked against its last line; at the end, the manifest.

    Memory for one saga at a time. Raises BadExport, OSError.
    """
    reader = _Reader()
    with path.open("rb") as file:
        for raw in file:
            saga = reader.take(raw)
            if saga is not None:
                yield saga
    if not reader.is_done:
        raise BadExport("it is cut off: there is no manifest")


class _Reader:
    """What has been read so far, and what may come next."""

    def __init__(self) -> None:
        self.is_done = False
        self._whole, self._heads = hashlib.sha256(), _Heads()
        self._found = {"sagas": 0, "entries": 0, "lines": 0}
        self._saga: SagaLines | None = None
        self._lines: list[str] = []

    def take(self, raw: bytes) -> SagaLines | None:
        """The next line of the file; a saga when it was the last of one."""
        number = self._found["lines"] + 1
        line, told = _parsed(raw, number)
        kind = told.get("kind", "")
        ended = None
        if self.is_done:
            raise BadExport(f"line {number}: there is more after the manifest")
        if number == 1:
            _check_format(told)
        elif self._saga is not None and kind == "saga.end":
            ended = self._end(told, number)
        elif self._saga is not None and not kind and table_of(line):
            self._lines.append(line)
        elif self._saga is None and kind == "saga":
            self._saga, self._lines = SagaLines(str(told.get("saga")), told, ()), []
        elif self._saga is None and kind == "manifest":
            self._check_manifest(told)
        else:
            raise BadExport(f"line {number}: {kind or 'a row'} does not belong here")
        self._whole.update(raw)
        self._found["lines"] = number
        return ended

    def _end(self, told: Mapping[str, Any], number: int) -> SagaLines:
        assert self._saga is not None
        saga, self._saga = self._saga, None
        saga.lines, saga.end = self._lines, told
        _check_end(saga, number)
        self._heads.add(told)
        self._found["sagas"] += 1
        self._found["entries"] += told["entries"]
        return saga

    def _check_manifest(self, told: Mapping[str, Any]) -> None:
        found = self._found | {"heads": self._heads.root(), "sha256": self._whole.hexdigest()}
        if wrong := sorted(name for name in found if told.get(name) != found[name]):
            raise BadExport(f"the manifest has another {', '.join(wrong)}")
        self.is_done = True


def _parsed(raw: bytes, number: int) -> tuple[str, dict[str, Any]]:
    try:
        line = raw.decode().removesuffix("\n")
        told = json.loads(line)
    except ValueError:
        raise BadExport(f"line {number}: this is no JSON in UTF-8") from None
    if not isinstance(told, dict) or not raw.endswith(b"\n"):
        raise BadExport(f"line {number}: this is no whole line of an export")
    return line, told


def _check_format(told: Mapping[str, Any]) -> None:
    if told.get("kind") != "export" or told.get("format") != FORMAT:
        raise BadExport(f"line 1: this is no export of format {FORMAT}")


def _check_end(saga: SagaLines, number: int) -> None:
    try:
        sealed = saga.sealed()
    except (KeyError, ValueError):
        raise BadExport(f"line {number}: saga {saga.id} has not exactly one row") from None
    if wrong := sorted(name for name in sealed if saga.end.get(name) != sealed[name]):
        raise BadExport(f"line {number}: saga {saga.id} has another {', '.join(wrong)}")
