"""How a CSV file is written: its delimiter and decimal point, and what its columns hold, from its first lines."""

from __future__ import annotations

import csv
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from participant.data.column_kinds import ColumnKind, kind_of
from participant.data.data_config import DataTable

SAMPLE_BYTES = 1 << 20
SAMPLE_LINES = 2000
_DELIMITERS = "\t;|"
_NAMES = {"\t": "tabs", ";": "semicolons", "|": "bars", ",": "commas"}
_COMMA_NUMBER, _POINT_NUMBER = re.compile(r"\s*[+-]?\d+,\d+\s*"), re.compile(r"\s*[+-]?\d*\.\d+\s*")


@dataclass(frozen=True, slots=True)
class Dialect:
    """Delimiter and decimal point; `note` is a sentence about what was recognised and not configured."""

    delimiter: str
    decimal: str
    note: str = ""


@dataclass(frozen=True, slots=True)
class CsvSample:
    """The dialect of a file, and its first lines, split into entries."""

    dialect: Dialect
    lines: Sequence[Sequence[str]]

    def kinds(self, names: Sequence[str], table: DataTable) -> dict[str, ColumnKind]:
        """The kind of every column, by the sampled lines; lines of another length are left to the reader's error."""
        body = [line for line in self.lines[int(table.header) :] if len(line) == len(names)]
        return {
            name: kind_of((line[place] for line in body), self.dialect.decimal, table.missing_markers)
            for place, name in enumerate(names)
        }

    @property
    def count(self) -> int:
        """How many lines were sampled."""
        return len(self.lines)


def sample_csv(path: Path, table: DataTable) -> CsvSample:
    """Read the first lines of the file; keys of `[data]` take precedence over what they look like."""
    with path.open("rb") as file:
        text = file.read(SAMPLE_BYTES).decode("utf-8-sig", errors="replace")
    lines = [line for line in text.splitlines() if line.strip()][:SAMPLE_LINES]
    if len(text) >= SAMPLE_BYTES and len(lines) > 2:
        lines.pop()  # cut off in the middle
    delimiter = table.delimiter or ("\t" if path.suffix == ".tsv" else _delimiter_of(lines))
    rows = _split(lines, delimiter)
    decimal = table.decimal or (_decimal_of(rows[int(table.header) :]) if delimiter != "," else ".")
    return CsvSample(Dialect(delimiter, decimal, _note(path, table, delimiter, decimal)), rows)


def _delimiter_of(lines: Sequence[str]) -> str:
    """The delimiter that divides all of the first lines into the same number of entries; otherwise a comma."""
    for sign in _DELIMITERS:
        widths = {len(row) for row in _split(lines[:20], sign)}
        if len(widths) == 1 and widths.pop() > 1:
            return sign
    return ","


def _decimal_of(rows: Sequence[Sequence[str]]) -> str:
    """A comma if numbers are written with one and none with a point."""
    entries = [entry for row in rows for entry in row]
    comma = any(_COMMA_NUMBER.fullmatch(entry) for entry in entries)
    return "," if comma and not any(_POINT_NUMBER.fullmatch(entry) for entry in entries) else "."


def _split(lines: Sequence[str], delimiter: str) -> list[list[str]]:
    try:
        return list(csv.reader(lines, delimiter=delimiter))
    except csv.Error:
        return [line.split(delimiter) for line in lines]


def _note(path: Path, table: DataTable, delimiter: str, decimal: str) -> str:
    told = []
    if not table.delimiter and delimiter != "," and path.suffix != ".tsv":
        told.append(f"{_NAMES[delimiter]} between entries")
    if not table.decimal and decimal == ",":
        told.append("a comma as the decimal point")
    return f"read with {' and '.join(told)}, as its first lines are written" if told else ""
