"""CSV files: delimiter, decimal point and kinds of columns from the first lines, then the numbers in batches."""

from __future__ import annotations

import csv
import gzip
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, BinaryIO, cast

from dcfpca.errors import BadInput
from participant.data.arrays import require_extra
from participant.data.data_config import DataTable
from participant.data.layout import ColumnKind, Layout, kind_of, plan_layout
from participant.data.matrix import Matrix
from participant.data.tables import SpillSettings, collect

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
    encoding: str = "utf8"


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
    with _opened(path) as file:
        head = file.read(SAMPLE_BYTES)
    encoding = _encoding_of(head, path)
    text = head.decode("utf-8-sig" if encoding == "utf8" else encoding, errors="replace")
    lines = [line for line in text.splitlines() if line.strip()][:SAMPLE_LINES]
    if len(text) >= SAMPLE_BYTES and len(lines) > 2:
        lines.pop()  # cut off in the middle
    delimiter = table.delimiter or ("\t" if path.suffix == ".tsv" else _delimiter_of(lines))
    rows = _split(lines, delimiter)
    decimal = table.decimal or (_decimal_of(rows[int(table.header) :]) if delimiter != "," else ".")
    return CsvSample(Dialect(delimiter, decimal, _note(path, table, delimiter, decimal, encoding), encoding), rows)


def _opened(path: Path) -> BinaryIO:
    return cast(BinaryIO, gzip.open(path) if path.suffix == ".gz" else path.open("rb"))


def _encoding_of(head: bytes, path: Path) -> str:
    """UTF-8 unless a mark or a byte says otherwise; BadInput for a workbook with the name of a text."""
    if head.startswith(b"PK\x03\x04"):
        raise BadInput(f"the data {path} is an Excel workbook, whatever its name", 'write format = "xlsx" in [data]')
    if head.startswith((b"\xff\xfe", b"\xfe\xff")):
        return "utf-16"
    if b"\0" in head:
        raise BadInput(f"the data {path} is not a CSV file, or is damaged", "set [data] format, or write it again")
    try:
        head.rsplit(b"\n", 1)[0].decode("utf-8")  # the last line may be cut in the middle of a letter
    except UnicodeDecodeError:
        return "latin-1"
    return "utf8"


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


def _note(path: Path, table: DataTable, delimiter: str, decimal: str, encoding: str) -> str:
    found = [] if encoding == "utf8" else [f"letters in {encoding.upper()}"]
    if not table.delimiter and delimiter != "," and path.suffix != ".tsv":
        found.append(f"{_NAMES[delimiter]} between entries")
    if not table.decimal and decimal == ",":
        found.append("a comma as the decimal point")
    return f"read with {' and '.join(found)}, as its first lines are written" if found else ""


def read_csv(path: Path, table: DataTable, place: SpillSettings) -> Matrix:
    """CSV or TSV with one line per sample, or per feature."""
    arrow_csv = require_extra("pyarrow.csv", "data")
    if path.stat().st_size == 0:
        raise BadInput(f"the data {path} is empty", "check how it was written")
    sample = sample_csv(path, table)
    reader = _CsvReader(path, table, sample.dialect, arrow_csv)
    layout = plan_layout(reader.names, sample.kinds(reader.names, table), table, str(path), sample.count)
    notes = tuple(note for note in (sample.dialect.note, layout.note) if note)
    made = collect(reader.batches(layout), layout, table, str(path), place, notes, sample.dialect.decimal)
    if not layout.samples_in_rows:
        return made
    return replace(made, lines=_lines(path, int(table.header), made.columns.shape[1]))


def _lines(path: Path, header: int, samples: int) -> range | None:
    """The line of each sample; None where lines are empty or broken within quotes, so that it is not known."""
    written = last = 0
    with _opened(path) as file:
        for number, line in enumerate(file, start=1):
            if line.strip():
                written, last = written + 1, number
    return range(header + 1, last + 1) if written == last == header + samples else None


BLOCK_BYTES, MOST_BLOCK_BYTES = 1 << 20, 1 << 25  # of text that is converted at a time
LINES = 64  # … or about so many lines, where a line is long


class _CsvReader:
    def __init__(self, path: Path, table: DataTable, dialect: Dialect, arrow_csv: Any) -> None:
        self._path, self._table, self._dialect, self._csv = path, table, dialect, arrow_csv
        self.names: list[str] = []
        try:
            self.names = list(self._open({}).schema.names)
        except Exception as error:
            raise self._bad_input(error) from None

    def batches(self, layout: Layout) -> Iterator[Any]:
        pa = require_extra("pyarrow", "data")
        kinds = dict.fromkeys(layout.numbers, pa.float64())
        kinds |= dict.fromkeys((*layout.decoded, *layout.texts), pa.string())
        try:
            yield from self._open({"column_types": kinds, "include_columns": list(kinds)}, self._block_bytes())
        except Exception as error:
            raise self._bad_input(error) from None

    def _block_bytes(self) -> int:
        """What is converted at a time: every block costs as much as an entry of every column, so it has many lines."""
        return min(max(BLOCK_BYTES, LINES * sum(len(name) + 1 for name in self.names)), MOST_BLOCK_BYTES)

    def _open(self, conversion: dict[str, Any], block_bytes: int = BLOCK_BYTES) -> Any:
        arrow, table = self._csv, self._table
        return arrow.open_csv(
            require_extra("pyarrow", "data").input_stream(str(self._path), compression="detect"),
            read_options=arrow.ReadOptions(
                use_threads=False,
                block_size=block_bytes,
                autogenerate_column_names=not table.header,
                encoding=self._dialect.encoding,
            ),
            parse_options=arrow.ParseOptions(delimiter=self._dialect.delimiter),
            convert_options=arrow.ConvertOptions(
                null_values=list(table.missing_markers), decimal_point=self._dialect.decimal, **conversion
            ),
        )

    def _bad_input(self, error: Exception) -> BadInput:
        """An error with line and column, but never the entry itself: data must not appear in logs."""
        if isinstance(error, BadInput):
            return error
        ragged = re.search(r"Row #(\d+): Expected (\d+) columns, got (\d+)", str(error))
        if ragged:
            sentence = f"has {ragged[3]} entries in line {ragged[1]}, not {ragged[2]}"
            return BadInput(f"the data {self._path} {sentence}", "check delimiters and quotes there")
        found = re.search(r"In CSV column #(\d+): Row #(\d+)", str(error))
        if found:
            column, line = int(found[1]), found[2]
            name = self.names[column] if column < len(self.names) else f"number {column + 1}"
            hint = "correct it, leave the column out with [data] exclude, or add the entry to missing_markers"
            return BadInput(f"the data {self._path} has no number in line {line}, column {name}", hint)
        hint = "check its encoding (UTF-8) and [data] delimiter"
        return BadInput(f"the data {self._path} is not a CSV file, or is damaged", hint)
