"""Tables: Parquet and Arrow files in batches, Excel sheets whole. Every error names the file and the place in it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from dcfpca.errors import BadInput, did_you_mean, listed
from dcfpca.rpca.column_blocks import ArrayColumns
from dcfpca.rpca.method import FloatArray
from participant.data.arrays import require_extra
from participant.data.data_config import DataTable
from participant.data.decoded_text import decoded
from participant.data.layout import (
    ColumnKind,
    Layout,
    RowLabels,
    check_ids,
    check_persons,
    kind_of,
    number_in,
    plan_layout,
)
from participant.data.matrix import Matrix
from participant.data.raw_file_columns import spill

BATCH_ROWS = 4096


@dataclass(frozen=True, slots=True)
class SpillSettings:
    """Where a decoded table is written, and the memory limit in bytes (0: none)."""

    directory: Path | None
    memory_limit: int


def read_parquet(path: Path, table: DataTable, place: SpillSettings) -> Matrix:
    """A Parquet file, one batch of rows at a time."""
    parquet = require_extra("pyarrow.parquet", "data")
    path.stat()
    try:
        file = parquet.ParquetFile(path)
        layout = plan_arrow(file.schema_arrow, table, str(path), file.metadata.num_rows)
        batches = file.iter_batches(batch_size=BATCH_ROWS, columns=_columns(layout), use_threads=False)
        return collect(batches, layout, table, str(path), place)
    except (OSError, ValueError) as error:  # ArrowInvalid is a ValueError
        raise _damaged(path, "a Parquet file", error) from None


def read_arrow(path: Path, table: DataTable, place: SpillSettings) -> Matrix:
    """An Arrow IPC or Feather file, or a stream of record batches."""
    ipc = require_extra("pyarrow.ipc", "data")
    pa = require_extra("pyarrow", "data")
    path.stat()
    try:
        source = pa.memory_map(str(path))
        try:
            file = ipc.open_file(source)
            batches = (file.get_batch(k) for k in range(file.num_record_batches))
        except pa.ArrowInvalid:
            source.seek(0)
            file = ipc.open_stream(source)
            batches = iter(file)
        layout = plan_arrow(file.schema, table, str(path), 0)
        return collect((batch.select(_columns(layout)) for batch in batches), layout, table, str(path), place)
    except (OSError, ValueError) as error:
        raise _damaged(path, "an Arrow file", error) from None


def _damaged(path: Path, kind: str, error: Exception) -> Exception:
    if isinstance(error, OSError) and error.errno:
        return error
    return BadInput(f"the data {path} is not {kind}, or is damaged or cut short", "write it again")


def plan_arrow(schema: Any, table: DataTable, origin: str, lines: int) -> Layout:
    """The layout of a table whose columns have Arrow types."""
    return plan_layout(list(schema.names), _arrow_kinds(schema), table, origin, lines)


def _arrow_kinds(schema: Any) -> Mapping[str, ColumnKind]:
    pa = require_extra("pyarrow", "data")
    found = {}
    for name, stored in zip(schema.names, schema.types, strict=True):
        kind = stored.value_type if pa.types.is_dictionary(stored) else stored
        if pa.types.is_temporal(kind):
            found[name] = ColumnKind("date")
        elif pa.types.is_integer(kind) or pa.types.is_floating(kind) or _castable(pa, kind):
            found[name] = ColumnKind("number")
        else:
            found[name] = ColumnKind("text")
    return found


def _columns(layout: Layout) -> list[str]:
    return [*layout.numbers, *layout.texts]


def collect(
    batches: Iterator[Any],
    layout: Layout,
    table: DataTable,
    origin: str,
    place: SpillSettings,
    notes: Sequence[str] | None = None,
    decimal: str = ".",
) -> Matrix:
    """Record batches as a matrix on disk, with the names of its features and the ids of its samples."""
    labels = RowLabels()
    numbers = (_numbers(batch, layout, labels, table, origin, decimal) for batch in batches)
    columns = spill(numbers, origin, place.directory, turned=layout.samples_in_rows, memory_limit=place.memory_limit)
    sentences = tuple(notes) if notes is not None else (layout.note,) if layout.note else ()
    return named_matrix(columns, layout, labels, table, origin, sentences)


def named_matrix(
    columns: Any, layout: Layout, labels: RowLabels, table: DataTable, origin: str, notes: tuple[str, ...]
) -> Matrix:
    """The matrix with names: a column of labels holds ids if lines are samples, otherwise names of features."""
    header = layout.features if table.header else ()
    found = check_ids(labels.names, origin, layout.label)
    if layout.samples_in_rows:
        persons = check_persons(labels.persons, origin)
        return Matrix(columns, header, found, persons, notes=notes, selected=bool(header), samples_in_rows=True)
    return Matrix(columns, found, header, notes=notes)


def _numbers(batch: Any, layout: Layout, labels: RowLabels, table: DataTable, origin: str, decimal: str) -> FloatArray:
    labels.extend(layout, lambda name: batch.column(name).to_pylist())
    found = [
        decoded(batch.column(name).to_pylist(), name, table, decimal, origin)
        if name in layout.decoded
        else _entries(batch.column(name))
        for name in layout.numbers
    ]
    return np.column_stack(found) if found else np.zeros((0, 0))


def _entries(column: Any) -> FloatArray:
    """A column as float64, with NaN where it has no value."""
    pa = require_extra("pyarrow", "data")
    kind = column.type
    if pa.types.is_dictionary(kind):
        column, kind = column.dictionary_decode(), kind.value_type
    converted = column.cast(pa.int8() if pa.types.is_boolean(kind) else kind).cast(pa.float64(), safe=False)
    return np.asarray(converted.to_numpy(zero_copy_only=False), dtype=np.float64)


def _castable(pa: Any, kind: Any) -> bool:
    return bool(pa.types.is_decimal(kind) or pa.types.is_boolean(kind) or pa.types.is_null(kind))


Line = tuple[int, Sequence[Any]]


def read_excel(path: Path, table: DataTable, place: SpillSettings) -> Matrix:
    """The sheet `[data] dataset`, or the only one; loaded as a whole, since a sheet has a million lines at most."""
    header, body = _sheet_lines(path, table)
    columns = {name: [line[k] for _, line in body] for k, name in enumerate(header)}
    kinds = {name: kind_of(entries, _decimal(table), table.missing_markers) for name, entries in columns.items()}
    layout = plan_layout(header, kinds, table, str(path), len(body))
    labels = RowLabels()
    labels.extend(layout, lambda name: [None if entry == "" else _cell_text(entry) for entry in columns[name]])
    numbers = np.column_stack(
        [
            decoded(columns[name], name, table, _decimal(table), str(path))
            if name in layout.decoded
            else _cell_numbers(path, header.index(name), body, table)
            for name in layout.numbers
        ]
    )
    read = ArrayColumns(numbers.T if layout.samples_in_rows else numbers)
    made = named_matrix(read, layout, labels, table, str(path), (layout.note,) if layout.note else ())
    return replace(made, lines=[number for number, _ in body]) if layout.samples_in_rows else made


def _sheet_lines(path: Path, table: DataTable) -> tuple[list[str], list[Line]]:
    """The names of the columns, and the lines below them with their numbers; empty lines are left out."""
    rows = _sheet(path, table.dataset)
    lines = [(number, row) for number, row in enumerate(rows, start=1) if any(entry != "" for entry in row)]
    width = max((k + 1 for _, row in lines for k, entry in enumerate(row) if entry != ""), default=0)
    if len(lines) < 1 + table.header:
        raise BadInput(f"the data {path} is empty: it has no lines of numbers", "check [data] dataset, the sheet")
    cut = [(number, row[:width]) for number, row in lines]
    if not table.header:
        return [f"f{k}" for k in range(width)], cut
    return [_cell_text(entry) for entry in cut[0][1]], cut[1:]


def _sheet(path: Path, wanted: str) -> Sequence[Sequence[Any]]:
    calamine = require_extra("python_calamine", "data")
    path.stat()
    try:
        book = calamine.CalamineWorkbook.from_path(str(path))
        names = list(book.sheet_names)
    except Exception:  # the reader's errors have no common base
        raise BadInput(f"the data {path} is not an Excel workbook, or is damaged", "save it again as .xlsx") from None
    if wanted and wanted not in names:
        hint = did_you_mean(wanted, names) or f"it has {listed(names)}"
        raise BadInput(f"the data {path} has no sheet {wanted}", hint)
    if not wanted and len(names) != 1:
        raise BadInput(f"the data {path} has the sheets {listed(names)}", "name one in [data] dataset")
    found: Sequence[Sequence[Any]] = book.get_sheet_by_name(wanted or names[0]).to_python(skip_empty_area=False)
    return found


def _cell_numbers(path: Path, column: int, body: Sequence[Line], table: DataTable) -> FloatArray:
    absent = set(table.missing_markers)
    found = np.full(len(body), np.nan)
    for place, (number, line) in enumerate(body):
        entry = line[column]
        if isinstance(entry, str) and entry.strip() in absent:
            continue
        try:
            found[place] = number_in(entry, _decimal(table))
        except ValueError:
            hint = "correct it, leave the column out with [data] exclude, or add the entry to missing_markers"
            raise BadInput(f"the data {path} has no number in cell {_letters(column)}{number}", hint) from None
    return found


def _decimal(table: DataTable) -> str:
    return table.decimal or "."


def _cell_text(entry: Any) -> str:
    """Text of a cell; Excel keeps 17 as 17.0."""
    return str(int(entry)) if isinstance(entry, float) and entry.is_integer() else str(entry).strip()


def _letters(column: int) -> str:
    letters = ""
    while column >= 0:
        letters, column = chr(65 + column % 26) + letters, column // 26 - 1
    return letters
