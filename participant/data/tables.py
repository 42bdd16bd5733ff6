"""Tables: CSV, Parquet and Arrow files, streamed in batches. Every error names the file and the place in it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from dcfpca.errors import BadInput
from dcfpca.rpca.method import FloatArray
from participant.data.arrays import require_extra
from participant.data.column_kinds import ColumnKind
from participant.data.csv_dialect import Dialect, sample_csv
from participant.data.data_config import DataTable
from participant.data.layout import Layout, plan_layout
from participant.data.matrix import Matrix
from participant.data.sample_ids import RowLabels, check_ids, check_persons
from participant.data.table_spill import spill

BATCH_ROWS = 4096


@dataclass(frozen=True, slots=True)
class SpillSettings:
    """Where a decoded table is written, and the memory limit in bytes (0: none)."""

    directory: Path | None
    memory_limit: int


def read_csv(path: Path, table: DataTable, place: SpillSettings) -> Matrix:
    """CSV or TSV with one line per sample, or per feature."""
    csv = require_extra("pyarrow.csv", "data")
    if path.stat().st_size == 0:
        raise BadInput(f"the data {path} is empty", "check how it was written")
    with path.open("rb") as file:
        if file.read(2) in (b"\xff\xfe", b"\xfe\xff"):
            raise BadInput(f"the data {path} is text in UTF-16", "save it as CSV in UTF-8")
    sample = sample_csv(path, table)
    reader = _CsvReader(path, table, sample.dialect, csv)
    layout = plan_layout(reader.names, sample.kinds(reader.names, table), table, str(path), sample.count)
    notes = tuple(note for note in (sample.dialect.note, layout.note) if note)
    return collect(reader.batches(layout), layout, table, str(path), place, notes)


class _CsvReader:
    def __init__(self, path: Path, table: DataTable, dialect: Dialect, csv: Any) -> None:
        self._path, self._table, self._dialect, self._csv = path, table, dialect, csv
        self.names: list[str] = []
        try:
            self.names = list(self._open({}).schema.names)
        except Exception as error:
            raise self._bad_input(error) from None

    def batches(self, layout: Layout) -> Iterator[Any]:
        pa = require_extra("pyarrow", "data")
        kinds = dict.fromkeys(layout.numbers, pa.float64()) | dict.fromkeys(layout.texts, pa.string())
        try:
            yield from self._open({"column_types": kinds, "include_columns": list(kinds)})
        except Exception as error:
            raise self._bad_input(error) from None

    def _open(self, conversion: dict[str, Any]) -> Any:
        csv, table = self._csv, self._table
        return csv.open_csv(
            self._path,
            read_options=csv.ReadOptions(use_threads=False, autogenerate_column_names=not table.header),
            parse_options=csv.ParseOptions(delimiter=self._dialect.delimiter),
            convert_options=csv.ConvertOptions(
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
) -> Matrix:
    """Record batches as a matrix on disk, with the names of its features and the ids of its samples."""
    labels = RowLabels()
    numbers = (_numbers(batch, layout, labels) for batch in batches)
    columns = spill(numbers, origin, place.directory, turned=layout.samples_in_rows, memory_limit=place.memory_limit)
    told = tuple(notes) if notes is not None else (layout.note,) if layout.note else ()
    return named_matrix(columns, layout, labels, table, origin, told)


def named_matrix(
    columns: Any, layout: Layout, labels: RowLabels, table: DataTable, origin: str, notes: tuple[str, ...]
) -> Matrix:
    """The matrix with names: a column of labels holds ids if lines are samples, otherwise names of features."""
    header = layout.numbers if table.header else ()
    found = check_ids(labels.names, origin, layout.label)
    if layout.samples_in_rows:
        persons = check_persons(labels.persons, origin)
        return Matrix(columns, header, found, persons, notes=notes, selected=bool(header), samples_in_rows=True)
    return Matrix(columns, found, header, notes=notes)


def _numbers(batch: Any, layout: Layout, labels: RowLabels) -> FloatArray:
    labels.extend(layout, lambda name: batch.column(name).to_pylist())
    found = [_entries(batch.column(name)) for name in layout.numbers]
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
