"""Readers by format. Each returns an array that `ArrayColumns` can cut blocks from without loading it whole."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from dcfpca.errors import BadInput
from dcfpca.rpca.columns import ArrayColumns
from dcfpca.rpca.exchange import Columns

Orientation = Literal["features-in-rows", "samples-in-rows"]
Reader = Callable[[Path], NDArray[Any]]


def open_columns(path: Path, format: str = "", orientation: Orientation = "features-in-rows") -> Columns:
    """The matrix in a file, m × n_i; every failure is one BadInput that names the file."""
    reader = FORMATS.get(format or path.suffix.removeprefix("."))
    if reader is None:
        hint = f"set [data] format to one of {', '.join(FORMATS)}"
        raise BadInput(f"the data {path} has no known format ({format or path.suffix or 'no ending'})", hint)
    try:
        array = reader(path)
    except OSError as error:
        hint = "check [data] path and that this user may read it"
        raise BadInput(f"the data {path} cannot be read: {error.strerror or error}", hint) from None
    _check(path, array)
    return ArrayColumns(array if orientation == "features-in-rows" else array.T)


def _read_npy(path: Path) -> NDArray[Any]:
    if path.stat().st_size == 0:
        raise BadInput(f"the data {path} is empty", "write the matrix with numpy.save")
    try:
        array: NDArray[Any] = np.load(path, mmap_mode="r", allow_pickle=False)
    except (ValueError, EOFError) as error:
        raise _not_an_array(path, error) from None
    if not isinstance(array, np.ndarray):
        raise BadInput(f"the data {path} is an archive, not a single array", 'set [data] format = "npz"')
    return array


def _read_npz(path: Path) -> NDArray[Any]:
    with path.open("rb") as file:
        try:
            archive = np.load(file, allow_pickle=False)
            arrays = (
                {"": archive} if isinstance(archive, np.ndarray) else {name: archive[name] for name in archive.files}
            )
        # A damaged archive shows as a ValueError, EOFError, BadZipFile or zlib.error, which have no common base.
        except Exception as error:
            raise _not_an_array(path, error) from None
    if len(arrays) != 1:
        names = ", ".join(arrays) or "none"
        raise BadInput(f"the data {path} holds the arrays {names}, not exactly one", "write the matrix alone")
    return next(iter(arrays.values()))


FORMATS: dict[str, Reader] = {"npy": _read_npy, "npz": _read_npz}


def _not_an_array(path: Path, error: Exception) -> BadInput:
    if "Object arrays" in str(error) or "Python objects" in str(error):
        hint = "convert it to float64 first: numpy.save(path, array.astype(float))"
        return BadInput(f"the data {path} holds Python objects, which are never loaded", hint)
    return BadInput(f"the data {path} is not a NumPy array file, or is damaged", "write it again with numpy.save")


def _check(path: Path, array: NDArray[Any]) -> None:
    if array.ndim != 2:
        hint = "one row per feature, one column per sample"
        raise BadInput(f"the data {path} has {array.ndim} dimensions, and a matrix has two", hint)
    if array.dtype.kind not in "fiub":
        hint = "convert it to float64: numpy.save(path, array.astype(float))"
        raise BadInput(f"the data {path} holds {array.dtype}, not real numbers", hint)
    if array.size == 0:
        raise BadInput(f"the data {path} is empty: {array.shape[0]} × {array.shape[1]}", "check how it was written")
