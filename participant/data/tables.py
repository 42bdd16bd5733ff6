"""Tables: CSV, Parquet and Arrow files, streamed in batches. Every error names the file and the place in it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from dcfpca.errors import BadInput
from dcfpca.rpca.method import FloatArray
from participant.data.arrays import require_extra
from participant.data.data_config import DataTable
from participant.data.matrix import Matrix, check_names, missing_features
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
    reader = _CsvReader(path, table, csv)
    names = _wanted(reader.names(), table, str(path))
    return collect(reader.batches(names), names, table, str(path), place)


class _CsvReader:
    def __init__(self, path: Path, table: DataTable, csv: Any) -> None:
        self._path, self._table, self._csv = path, table, csv
        self._delimiter = table.delimiter or ("\t" if path.suffix == ".tsv" else ",")

    def names(self) -> list[str]:
        try:
            return list(self._open({}).schema.names)
        except Exception as error:
            raise self._bad_input(error, []) from None

    def batches(self, names: Sequence[str]) -> Iterator[Any]:
        pa = require_extra("pyarrow", "data")
        kinds = {name: pa.string() if name == self._table.feature_column else pa.float64() for name in names}
        try:
            yield from self._open({"column_types": kinds, "include_columns": list(names)})
        except Exception as error:
            raise self._bad_input(error, names) from None

    def _open(self, conversion: dict[str, Any]) -> Any:
        csv, table = self._csv, self._table
        return csv.open_csv(
            self._path,
            read_options=csv.ReadOptions(use_threads=False, autogenerate_column_names=not table.header),
            parse_options=csv.ParseOptions(delimiter=self._delimiter),
            convert_options=csv.ConvertOptions(
                null_values=list(table.missing_markers), decimal_point=table.decimal, **conversion
            ),
        )

    def _bad_input(self, error: Exception, names: Sequence[str]) -> BadInput:
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
            name = names[column] if column < len(names) else f"number {column + 1}"
            hint = "correct it, leave the column out with [data] features, or add the entry to missing_markers"
            if len(names) == 1 and re.search(r"[;\t|]", name):
                hint = "it seems to have another delimiter: see [data] delimiter"
            return BadInput(f"the data {self._path} has no number in line {line}, column {name}", hint)
        return BadInput(f"the data {self._path} is not a CSV file, or is damaged", "check its encoding and delimiter")


def read_parquet(path: Path, table: DataTable, place: SpillSettings) -> Matrix:
    """A Parquet file, one batch of rows at a time."""
    parquet = require_extra("pyarrow.parquet", "data")
    path.stat()
    try:
        file = parquet.ParquetFile(path)
        names = _wanted(list(file.schema_arrow.names), table, str(path))
        batches = file.iter_batches(batch_size=BATCH_ROWS, columns=names, use_threads=False)
        return collect(batches, names, table, str(path), place)
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
        names = _wanted(list(file.schema.names), table, str(path))
        return collect((batch.select(names) for batch in batches), names, table, str(path), place)
    except (OSError, ValueError) as error:
        raise _damaged(path, "an Arrow file", error) from None


def _damaged(path: Path, kind: str, error: Exception) -> Exception:
    if isinstance(error, OSError) and error.errno:
        return error
    return BadInput(f"the data {path} is not {kind}, or is damaged or cut short", "write it again")


def _wanted(names: list[str], table: DataTable, origin: str) -> list[str]:
    """The columns to read: in a table of samples the chosen features, in a table of features all."""
    check_names(names, origin)
    if table.feature_column and table.feature_column not in names:
        raise BadInput(f"the data {origin} has no column {table.feature_column}", "see [data] feature_column")
    if table.orientation == "features-in-rows":
        return names
    if not table.features:
        _require_names(names, origin)
        return names
    if absent := missing_features(names, table.features):
        hint = f"its columns are {', '.join(names[:20])}"
        raise BadInput(f"the data {origin} has no column {', '.join(absent[:8])}", hint)
    return list(table.features)


def _require_names(names: Sequence[str], origin: str) -> None:
    """Refuse a column without a name: it is more often a row number than a feature."""
    if "" in names:
        hint = "name it if it is a feature, or choose the features with [data] features"
        raise BadInput(f"the data {origin} has no name for column {names.index('') + 1}", hint)


def collect(
    batches: Iterator[Any], names: Sequence[str], table: DataTable, origin: str, place: SpillSettings
) -> Matrix:
    """Record batches as a matrix on disk, with the names of its features."""
    turned = table.orientation == "samples-in-rows"
    labels: list[str] = []
    label = None if turned else table.feature_column or None
    numbers = (_numbers(batch, label, labels, origin) for batch in batches)
    columns = spill(numbers, origin, place.directory, turned=turned, memory_limit=place.memory_limit)
    check_names(labels, origin)
    return Matrix(columns, tuple(names) if turned and table.header else tuple(labels))


def _numbers(batch: Any, label: str | None, labels: list[str], origin: str) -> FloatArray:
    found = []
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        if name == label:
            labels.extend(str(value) for value in column.to_pylist())
            continue
        found.append(_entries(name, column, origin))
    return np.column_stack(found) if found else np.zeros((0, 0))


def _entries(name: str, column: Any, origin: str) -> FloatArray:
    """A column as float64, with NaN where it has no value."""
    pa = require_extra("pyarrow", "data")
    kind = column.type
    if pa.types.is_dictionary(kind) and not pa.types.is_string(kind.value_type):
        column, kind = column.dictionary_decode(), kind.value_type
    if not (pa.types.is_integer(kind) or pa.types.is_floating(kind) or _castable(pa, kind)):
        hint = "leave it out with [data] features, or store numbers"
        raise BadInput(f"the data {origin} holds {kind} in column {name}, not numbers", hint)
    converted = column.cast(pa.int8() if pa.types.is_boolean(kind) else kind).cast(pa.float64(), safe=False)
    return np.asarray(converted.to_numpy(zero_copy_only=False), dtype=np.float64)


def _castable(pa: Any, kind: Any) -> bool:
    return bool(pa.types.is_decimal(kind) or pa.types.is_boolean(kind) or pa.types.is_null(kind))
