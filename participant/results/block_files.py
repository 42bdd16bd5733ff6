"""L, V, S and the scores of a result, written block by block, so that no matrix has to be in memory as a whole."""

from __future__ import annotations

import io
import shutil
import zipfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, Any, TypeVar

import numpy as np
import scipy
from numpy.typing import NDArray

from dcfpca.rpca.calibration.instruments import InstrumentScan
from dcfpca.rpca.method import ColumnScores, FloatArray, Instrument, ResultBlock

SCORES = "scores.npz"
"""Of every sample: its p-value, its largest |z| and its squared distance within the subspace."""
MOST_LISTED = 500_000
"""Flagged entries that tables list: spreadsheets open twice as many lines, and nobody reads so many."""


@dataclass(frozen=True, slots=True, eq=False)
class FlaggedEntries:
    """The entries of S, column by column: where they are, what was expected there, and how far the data is off."""

    rows: NDArray[np.integer[Any]]
    columns: NDArray[np.integer[Any]]
    expected: FloatArray
    off: FloatArray
    z: FloatArray  # NaN, as the next three, where a method has no null
    exceeded_by: FloatArray
    values: FloatArray
    consortium_z: FloatArray


@dataclass(frozen=True, slots=True, eq=False)
class WrittenBlocks:
    """What tables of flags are made from, so that nothing has to be read back."""

    flags: FlaggedEntries  # the MOST_LISTED furthest off; S.npz has all
    per_sample: NDArray[np.int64]  # flagged entries of each sample
    scores: ColumnScores | None
    instruments: tuple[Instrument, ...]
    usual_here: FloatArray  # of all blocks


PerColumn = TypeVar("PerColumn", FlaggedEntries, ColumnScores)


def write_blocks(
    target: Path, blocks: Iterable[ResultBlock], shape: tuple[int, int], kept: NDArray[np.bool_]
) -> WrittenBlocks:
    """Write L.npy, V.npy with the `kept` directions, S.npz and, if the blocks have them, scores.npz."""
    rows, columns = shape
    flags, scores, scan = list[FlaggedEntries](), list[ColumnScores](), InstrumentScan(rows)
    usual_here, per_sample = np.zeros((rows, 2)), np.zeros(columns, np.int64)
    with (
        columns_file(target / "L.npy", rows, columns) as append_L,
        columns_file(target / "V.npy", int(kept.sum()), columns, turned=True) as append_V,
        outliers_file(target / "S.npz", rows, columns) as append_S,
    ):
        for block in blocks:
            append_L(block.L)
            append_V(block.V[:, kept].T)
            append_S(block.S)
            flags.append(flagged_entries(block))
            per_sample[block.start : block.start + block.S.shape[1]] = np.diff(block.S.indptr)
            if sum(part.off.size for part in flags) > 2 * MOST_LISTED:
                flags = [_furthest_off(_joined(flags))]
            scan.add(block.start, block.scanned)
            usual_here += 0.0 if block.usual_here is None else block.usual_here
            if block.scores is not None:
                scores.append(block.scores)
    listed = _furthest_off(_joined(flags))
    if not scores:
        return WrittenBlocks(listed, per_sample, None, (), usual_here)
    np.savez(target / SCORES, **asdict(_joined(scores)))
    return WrittenBlocks(listed, per_sample, _joined(scores), scan.found(), usual_here)


def flagged_entries(block: ResultBlock) -> FlaggedEntries:
    """The entries of S in one block."""
    S = block.S
    S.sort_indices()
    columns = np.repeat(np.arange(S.shape[1]), np.diff(S.indptr))
    here, L, found = block.start + columns, np.asarray(block.L[S.indices, columns]), block.findings
    if found is None:
        return FlaggedEntries(S.indices, here, L, S.data, *4 * [np.full(S.nnz, np.nan)])
    off = L + S.data - found.expected
    judged = found.z, found.exceeded_by, found.values, found.consortium_z
    return FlaggedEntries(S.indices, here, found.expected, off, *judged)


def _furthest_off(entries: FlaggedEntries) -> FlaggedEntries:
    """The MOST_LISTED furthest off, column by column."""
    if entries.off.size <= MOST_LISTED:
        return entries
    size = np.abs(np.where(np.isnan(entries.z), entries.off, entries.z))
    kept = np.sort(np.argpartition(-size, MOST_LISTED)[:MOST_LISTED])
    return FlaggedEntries(*(getattr(entries, field.name)[kept] for field in fields(entries)))


def _joined(parts: Sequence[PerColumn]) -> PerColumn:
    names = [field.name for field in fields(parts[0])]
    return type(parts[0])(*(np.concatenate([getattr(part, name) for part in parts]) for name in names))


@contextmanager
def columns_file(
    path: Path, rows: int, columns: int, *, turned: bool = False
) -> Iterator[Callable[[FloatArray], object]]:
    """Yield a function that appends blocks of columns to an .npy file of a matrix; `turned`: of its transpose."""
    with path.open("wb") as file:
        shape = (columns, rows) if turned else (rows, columns)
        np.lib.format.write_array_header_1_0(file, {"descr": "<f8", "fortran_order": not turned, "shape": shape})
        yield lambda block: file.write(np.ascontiguousarray(block.T).data)


@contextmanager
def outliers_file(path: Path, rows: int, columns: int) -> Iterator[Callable[[scipy.sparse.csc_array], None]]:
    """Yield a function that appends blocks of columns to a sparse matrix as scipy.sparse.load_npz reads it.

    Entries are kept in two temporary files until the end, and not compressed: that would take longer than the rest.
    """
    counts: list[NDArray[np.int64]] = []
    with TemporaryFile(dir=path.parent) as data, TemporaryFile(dir=path.parent) as indices:

        def append(block: scipy.sparse.csc_array) -> None:
            block.sort_indices()
            data.write(np.ascontiguousarray(block.data, np.float64).data)
            indices.write(np.ascontiguousarray(block.indices, np.int32).data)
            counts.append(np.diff(block.indptr).astype(np.int64))

        yield append
        pointers = np.concatenate([[0], *counts]).cumsum()
        entries = int(pointers[-1])
        small = np.int32 if entries < 2**31 else np.int64
        with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED, allowZip64=True) as archive:
            _put_array(archive, "format", np.array(b"csc"))
            _put_array(archive, "shape", np.array((rows, columns)))
            _put_array(archive, "_is_array", np.array(True))
            _put_array(archive, "indptr", pointers.astype(small))
            _put_file(archive, "indices", indices, "<i4", entries)
            _put_file(archive, "data", data, "<f8", entries)


def _put_array(archive: zipfile.ZipFile, name: str, array: NDArray[Any]) -> None:
    buffer = io.BytesIO()
    np.lib.format.write_array(buffer, array, allow_pickle=False)
    archive.writestr(f"{name}.npy", buffer.getvalue())


def _put_file(archive: zipfile.ZipFile, name: str, file: IO[bytes], kind: str, entries: int) -> None:
    file.seek(0)
    with archive.open(f"{name}.npy", "w", force_zip64=True) as target:
        header = {"descr": kind, "fortran_order": False, "shape": (entries,)}
        np.lib.format.write_array_header_1_0(target, header)
        shutil.copyfileobj(file, target, 1 << 20)
