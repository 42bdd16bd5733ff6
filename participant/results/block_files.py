"""Result files written block by block, so that no matrix has to be in memory as a whole."""

from __future__ import annotations

import io
import shutil
import zipfile
from pathlib import Path
from tempfile import TemporaryFile
from types import TracebackType
from typing import IO, Any, Self

import numpy as np
import scipy
from numpy.typing import NDArray

from dcfpca.rpca.method import FloatArray


class ColumnsFile:
    """An .npy file of a matrix to which blocks of columns are appended; with `turned`, of its transpose."""

    def __init__(self, path: Path, rows: int, columns: int, *, turned: bool = False) -> None:
        self._file = path.open("wb")
        shape = (columns, rows) if turned else (rows, columns)
        header = {"descr": "<f8", "fortran_order": not turned, "shape": shape}
        np.lib.format.write_array_header_1_0(self._file, header)

    def append(self, block: FloatArray) -> None:
        """The next columns."""
        self._file.write(np.ascontiguousarray(block.T).data)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()


class OutliersFile:
    """An .npz file of a sparse matrix as scipy.sparse.load_npz reads it, to which blocks of columns are appended.

    Entries are kept in two temporary files until the end, and not compressed: that would take longer than the rest.
    """

    def __init__(self, path: Path, rows: int, columns: int) -> None:
        self._path, self._shape = path, (rows, columns)
        self._data, self._indices = TemporaryFile(dir=path.parent), TemporaryFile(dir=path.parent)  # noqa: SIM115
        self._counts: list[NDArray[np.int64]] = []

    def append(self, block: scipy.sparse.csc_array) -> None:
        """The next columns."""
        block.sort_indices()
        self._data.write(np.ascontiguousarray(block.data, np.float64).data)
        self._indices.write(np.ascontiguousarray(block.indices, np.int32).data)
        self._counts.append(np.diff(block.indptr).astype(np.int64))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if kind is None:
                self._write()
        finally:
            self._data.close()
            self._indices.close()

    def _write(self) -> None:
        pointers = np.concatenate([[0], *self._counts]).cumsum()
        entries = int(pointers[-1])
        small = np.int32 if entries < 2**31 else np.int64
        with zipfile.ZipFile(self._path, "w", zipfile.ZIP_STORED, allowZip64=True) as archive:
            _put_array(archive, "format", np.array(b"csc"))
            _put_array(archive, "shape", np.array(self._shape))
            _put_array(archive, "_is_array", np.array(True))
            _put_array(archive, "indptr", pointers.astype(small))
            _put_file(archive, "indices", self._indices, "<i4", entries)
            _put_file(archive, "data", self._data, "<f8", entries)


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
