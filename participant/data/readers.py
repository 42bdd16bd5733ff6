"""Opens the site's data: from the `[data]` table to a matrix with feature names.

A query has one row per sample: DuckDB answers it over local files, SQLAlchemy over a database server.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from dcfpca.errors import BadInput
from dcfpca.rpca.method import Columns, FloatArray
from participant.data.arrays import read_hdf5, read_npy, read_npz, read_zarr, require_extra
from participant.data.csv_files import read_csv
from participant.data.data_config import DataTable
from participant.data.decoded_text import decoded
from participant.data.layout import Layout, RowLabels, check_ids, check_persons, choose_features, plan_layout
from participant.data.matrix import JoinedColumns, Matrix, bounded, check_names, select_features
from participant.data.raw_file_columns import spill
from participant.data.rules import without_codes
from participant.data.tables import (
    BATCH_ROWS,
    SpillSettings,
    collect,
    named_matrix,
    plan_arrow,
    read_arrow,
    read_excel,
    read_parquet,
)

ARRAYS: dict[str, Callable[[Path, DataTable, int], Columns]] = {
    "npy": read_npy,
    "npz": read_npz,
    "hdf5": read_hdf5,
    "h5": read_hdf5,
    "zarr": read_zarr,
}
TABLES: dict[str, Callable[[Path, DataTable, SpillSettings], Matrix]] = {
    "csv": read_csv,
    "tsv": read_csv,
    "txt": read_csv,
    "parquet": read_parquet,
    "arrow": read_arrow,
    "feather": read_arrow,
    "xlsx": read_excel,
}
FORMATS = (*ARRAYS, *TABLES)


def open_matrix(table: DataTable, spool: Path | None = None, memory_limit: int = 0) -> Matrix:
    """The matrix, m × n_i, with the selected features; every failure is one BadInput that names the file and place.

    `spool` is the directory for decoded tables. With a `memory_limit` (bytes) a matrix larger than a fraction of it is
    read through a window and never held in memory.
    """
    matrix = _with_persons(read_matrix(table, spool, memory_limit), table)
    if matrix.selected:
        return matrix
    if table.id_column:
        hint = "use a table with a line for each sample and that column, or take id_column out"
        raise BadInput(f"the data {table.origin} has no column {table.id_column}, which [data] id_column names", hint)
    wanted = table.features or table.exclude
    if wanted and matrix.features:
        wanted = choose_features(matrix.features, table.features, table.exclude, table.origin)
    return select_features(matrix, wanted, table.origin)


def read_matrix(table: DataTable, spool: Path | None = None, memory_limit: int = 0) -> Matrix:
    """Like `open_matrix`, but a format that is not read by column comes with all its features."""
    place = SpillSettings(spool, memory_limit)
    matrix = read_query(table, place) if table.query else _read_path(table, place)
    return without_codes(replace(matrix, columns=bounded(matrix.columns, memory_limit)), table.rules, table.origin)


def _read_path(table: DataTable, place: SpillSettings) -> Matrix:
    assert table.path is not None
    try:
        matrix = _read_any(table.path, table, place)
        if table.feature_names is None:
            return matrix
        names = _read_names(table.feature_names)
        rows, columns = matrix.columns.shape
        if not table.orientation and len(names) == columns != rows:
            turned = table.model_copy(update={"orientation": "samples-in-rows"})
            note = f"read with samples in rows, because {table.feature_names.name} has {columns} names"
            matrix = replace(_read_any(table.path, turned, place), notes=(note,))
        return _named(matrix, names, table)
    except OSError as error:
        hint = "check the path (--input, or [data] path) and that this user may read it"
        raise BadInput(f"the data {table.path} cannot be read: {error.strerror or error}", hint) from None


def _read_any(path: Path, table: DataTable, place: SpillSettings) -> Matrix:
    named = path.with_suffix("") if path.suffix.lower() == ".gz" else path  # data.csv.gz
    kind = table.format or named.suffix.removeprefix(".").lower()
    if path.is_dir() and kind != "zarr" and not (path / "zarr.json").exists() and not (path / ".zarray").exists():
        return _read_folder(path, table, place)
    return _read_file(path, "zarr" if path.is_dir() else kind, table, place)


def _read_file(path: Path, kind: str, table: DataTable, place: SpillSettings) -> Matrix:
    if kind in ARRAYS:
        columns = ARRAYS[kind](path, table, place.memory_limit)
        return Matrix(columns, samples_in_rows=table.orientation == "samples-in-rows")
    if kind in TABLES:
        return TABLES[kind](path, table, place)
    hint = f"set [data] format to one of {', '.join(FORMATS)}"
    raise BadInput(f"the data {path} has no known format ({kind or 'no ending'})", hint)


def _read_folder(path: Path, table: DataTable, place: SpillSettings) -> Matrix:
    """The files of a folder, in the order of their names, as parts of one matrix with the same features."""
    files = sorted(part for part in path.iterdir() if not part.name.startswith((".", "_")))
    if not files:
        raise BadInput(f"the folder {path} has no files in it", "put the parts of the matrix there")
    parts = [_read_any(part, table, place) for part in files]
    first = parts[0]
    for file, part in zip(files, parts, strict=True):
        if part.columns.shape[0] != first.columns.shape[0]:
            problem = f"{part.columns.shape[0]} features, {files[0].name} has {first.columns.shape[0]}"
            raise BadInput(f"the part {file} has {problem}", "all parts must have the same features")
        if set(part.features) != set(first.features):
            differing = sorted(set(part.features) ^ set(first.features))
            raise BadInput(f"the part {file} differs from {files[0].name} in {', '.join(differing[:8])}", "rename them")
    ordered = [select_features(part, first.features, str(file)) for file, part in zip(files, parts, strict=True)]
    joined = JoinedColumns(tuple(part.columns for part in ordered))
    ids = [one for part in ordered for one in part.ids]
    persons = tuple(one for part in ordered for one in part.persons)
    known = check_ids(ids, str(path)) if len(ids) == joined.shape[1] else ()
    return replace(first, columns=joined, ids=known, persons=persons, lines=None)


def _with_persons(matrix: Matrix, table: DataTable) -> Matrix:
    """The matrix with the persons of the file `[data] persons`; a column that should say them must have been read."""
    if table.person_column and not matrix.persons:
        hint = "give [data] persons, a text file with one line per sample"
        raise BadInput(f"the data {table.origin} has no column of persons, and [data] person_column is set", hint)
    if table.persons is None:
        return matrix
    try:
        lines = table.persons.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError):
        raise BadInput(f"the persons {table.persons} cannot be read", "check the path") from None
    if len(lines) != (count := matrix.columns.shape[1]):
        problem = f"{len(lines)} lines for the {count} samples of {table.origin}"
        raise BadInput(f"{table.persons} has {problem}", "give one line per sample, in their order")
    return replace(matrix, persons=check_persons(lines, str(table.persons)))


def _read_names(path: Path) -> tuple[str, ...]:
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError):
        raise BadInput(f"the feature names {path} cannot be read", "check the path") from None
    names = tuple(line.strip() for line in lines if line.strip())
    check_names(names, str(path))
    return names


def _named(matrix: Matrix, names: tuple[str, ...], table: DataTable) -> Matrix:
    """The matrix with the names from the file `feature_names`."""
    if len(names) != matrix.columns.shape[0]:
        problem = f"{len(names)} names for the {matrix.columns.shape[0]} features of {table.origin}"
        raise BadInput(f"{table.feature_names} has {problem}", "give one name per line, and check [data] orientation")
    return replace(matrix, features=names)


def read_query(table: DataTable, place: SpillSettings) -> Matrix:
    """The result of the query, written to disk batch by batch."""
    rows_are_samples = table.model_copy(update={"orientation": "samples-in-rows", "header": True})
    return _from_server(rows_are_samples, place) if table.url else _from_files(rows_are_samples, place)


def _from_files(table: DataTable, place: SpillSettings) -> Matrix:
    """DuckDB over files in the folder `path`, or over the DuckDB database `path`."""
    duckdb = require_extra("duckdb", "sql")
    settings: dict[str, Any] = {"autoinstall_known_extensions": "false"}  # a query must not download code
    folder = table.path is None or table.path.is_dir()
    try:
        database = duckdb.connect(":memory:" if folder else str(table.path), read_only=not folder, config=settings)
        if table.path is not None and folder:
            database.execute("SET file_search_path = ?", [str(table.path)])
        answer = database.sql(table.query)
        if answer is None:
            raise BadInput("[data] query returns no table", "write a SELECT")
        reader = answer.to_arrow_reader(BATCH_ROWS)
        layout = plan_arrow(reader.schema, table, table.origin, 0)
        return collect(iter(reader), layout, table, table.origin, place)
    except duckdb.Error as error:
        raise _refused("DuckDB", error) from None


def _from_server(table: DataTable, place: SpillSettings) -> Matrix:
    alchemy = require_extra("sqlalchemy", "sql")
    problems = require_extra("sqlalchemy.exc", "sql")
    try:
        engine = alchemy.create_engine(table.url)
    except (problems.NoSuchModuleError, ImportError) as error:
        hint = "write dialect+driver://user@host/database, and install the driver"
        raise BadInput(f"[data] url is not usable: {_first_line(error)}", hint) from None
    except (problems.SQLAlchemyError, ValueError):
        # The library's message may quote the URL, and with it a password.
        hint = "write dialect+driver://user@host:port/database; write special characters of a password as %40 (@)"
        raise BadInput("[data] url is not usable: it cannot be read as a URL", hint) from None
    try:
        with (
            engine.connect().execution_options(stream_results=True) as connection,
            closing(connection.execute(alchemy.text(table.query))) as answer,
        ):
            return _collected(answer, table, place)
    except problems.SQLAlchemyError as error:
        raise _refused(engine.url.host or engine.dialect.name, error) from None
    finally:
        engine.dispose()


def _collected(answer: Any, table: DataTable, place: SpillSettings) -> Matrix:
    names = list(answer.keys())
    labels = RowLabels()
    layout = plan_layout(names, {}, table, table.origin, 0)
    batches = _batches(answer.partitions(BATCH_ROWS), names, layout, labels, table)
    columns = spill(batches, table.origin, place.directory, turned=True, memory_limit=place.memory_limit)
    return named_matrix(columns, layout, labels, table, table.origin, ())


def _batches(
    parts: Iterator[Sequence[Any]], names: Sequence[str], layout: Layout, labels: RowLabels, table: DataTable
) -> Iterator[FloatArray]:
    begin, numbers = 0, [name for name in layout.numbers if name not in layout.decoded]
    for part in parts:
        read = partial(_column, part, names)
        labels.extend(layout, read)
        try:
            yield np.column_stack(
                [
                    decoded(read(name), name, table, ".", table.origin)
                    if name in layout.decoded
                    else [np.nan if entry is None else float(entry) for entry in read(name)]
                    for name in layout.numbers
                ]
            )
        except (TypeError, ValueError):
            raise _not_a_number(part, begin, {name: names.index(name) for name in numbers}, table.origin) from None
        begin += len(part)


def _column(part: Sequence[Any], names: Sequence[str], name: str) -> list[Any]:
    place = names.index(name)
    return [row[place] for row in part]


def _not_a_number(part: Sequence[Any], begin: int, places: Mapping[str, int], origin: str) -> BadInput:
    for line, row in enumerate(part):
        for name, place in places.items():
            entry = row[place]
            if isinstance(entry, str | bytes) or (entry is not None and not hasattr(entry, "__float__")):
                hint = "leave the column out of the query, name it in [data] id_column or exclude, or convert it"
                return BadInput(f"the data {origin} has no number in row {begin + line + 1}, column {name}", hint)
    return BadInput(f"the data {origin} is not a table of numbers", "convert its columns in the query")


def _refused(who: str, error: Exception) -> BadInput:
    return BadInput(f"{who} does not answer [data] query: {_first_line(error)}", "try the query by hand")


def _first_line(error: Exception) -> str:
    cause = getattr(error, "orig", None) or error
    return str(cause).strip().split("\n", maxsplit=1)[0]
