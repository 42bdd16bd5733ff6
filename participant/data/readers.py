"""Opens the site's data: from the `[data]` table to a matrix with feature names."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from dcfpca.errors import BadInput
from dcfpca.rpca.method import Columns
from participant.data.arrays import read_hdf5, read_npy, read_npz, read_zarr
from participant.data.csv_files import read_csv
from participant.data.data_config import DataTable
from participant.data.layout import check_ids, check_persons, choose_features
from participant.data.matrix import JoinedColumns, Matrix, bounded, check_names, select_features
from participant.data.sql import read_query
from participant.data.tables import SpillSettings, read_arrow, read_excel, read_parquet

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
        hint = "remove it, or use a table with a line for each sample"
        raise BadInput(f"the data {table.origin} has no id column, and [data] id_column is set", hint)
    wanted = table.features or table.exclude
    if wanted and matrix.features:
        wanted = choose_features(matrix.features, table.features, table.exclude, table.origin)
    return select_features(matrix, wanted, table.origin)


def read_matrix(table: DataTable, spool: Path | None = None, memory_limit: int = 0) -> Matrix:
    """Like `open_matrix`, but a format that is not read by column comes with all its features."""
    place = SpillSettings(spool, memory_limit)
    matrix = read_query(table, place) if table.query else _read_path(table, place)
    return replace(matrix, columns=bounded(matrix.columns, memory_limit))


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
        hint = "check [data] path and that this user may read it"
        raise BadInput(f"the data {table.path} cannot be read: {error.strerror or error}", hint) from None


def _read_any(path: Path, table: DataTable, place: SpillSettings) -> Matrix:
    kind = table.format or path.suffix.removeprefix(".").lower()
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
    return replace(first, columns=joined, ids=known, persons=persons)


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
