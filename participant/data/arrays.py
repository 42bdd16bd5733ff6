"""Array files: NumPy, HDF5 and Zarr, read in place; nothing is copied to disk."""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dcfpca.errors import BadInput
from dcfpca.rpca.column_blocks import ArrayColumns
from dcfpca.rpca.method import Columns
from participant.data.data_config import DataTable
from participant.data.matrix import ChunkedColumns
from participant.data.raw_file_columns import raw_columns_of


def read_npy(path: Path, table: DataTable, memory_limit: int) -> Columns:
    """A memory map; under a memory limit plain reads of the file, because mapped pages count as memory."""
    if path.stat().st_size == 0:
        raise BadInput(f"the data {path} is empty", "write the matrix with numpy.save")
    array = _map_npy(path)
    check_array(path, array.shape, array.dtype)
    turned = table.orientation == "samples-in-rows"
    if memory_limit:
        return raw_columns_of(path, array, turned=turned)
    return ArrayColumns(array.T if turned else array)


def _map_npy(path: Path) -> np.memmap[Any, Any]:
    try:
        array = np.load(path, mmap_mode="r", allow_pickle=False)
    except OSError:
        raise
    # numpy parses the header as Python source: damage raises SyntaxError, TokenError, OverflowError and more.
    except Exception as error:
        raise _not_an_array(path, error) from None
    if not isinstance(array, np.memmap):
        raise BadInput(f"the data {path} is an archive, not a single array", 'set [data] format = "npz"')
    return array


def read_npz(path: Path, table: DataTable, memory_limit: int) -> Columns:
    """One array of an archive, loaded as a whole: the format does not allow partial reads."""
    with path.open("rb") as file:
        try:
            archive = np.load(file, allow_pickle=False)
            names = [""] if isinstance(archive, np.ndarray) else list(archive.files)
            name = _only(path, names, table.dataset)
            array = archive if isinstance(archive, np.ndarray) else archive[name]
        except BadInput:
            raise
        # Damage raises ValueError, EOFError, BadZipFile or zlib.error, which have no common base.
        except Exception as error:
            raise _not_an_array(path, error) from None
    check_array(path, array.shape, array.dtype)
    return ArrayColumns(array.T if table.orientation == "samples-in-rows" else array)


def read_hdf5(path: Path, table: DataTable, memory_limit: int) -> Columns:
    """A dataset of an HDF5 file, in windows of whole chunks."""
    h5py = require_extra("h5py", "data")
    path.stat()
    try:
        file = h5py.File(path, "r")
    except OSError:
        raise BadInput(f"the data {path} is not an HDF5 file, or is damaged", "write it again") from None
    found: list[str] = []
    try:
        linked = file.visititems_links(lambda name, link: name if isinstance(link, h5py.ExternalLink) else None)
        _refuse_other_files(path, linked, linked is not None)
        file.visititems(lambda name, item: found.append(name) if isinstance(item, h5py.Dataset) else None)
        dataset = file[name := _only(path, found, table.dataset.strip("/"))]
        _refuse_other_files(path, name, dataset.is_virtual or dataset.external is not None)
        return _chunked(path, name, dataset, table)
    # SystemError: a link that cannot be decoded ends the visit with an error that h5py does not expect.
    except (OSError, RuntimeError, ValueError, KeyError, TypeError, OverflowError, SystemError):
        raise BadInput(f"the data {path} is damaged", "write it again, or restore it from a backup") from None


def _refuse_other_files(path: Path, name: str | None, refers: bool) -> None:
    """Whoever wrote the file must not choose which other files of this machine are read as data."""
    if refers:
        hint = "write the numbers into the file itself"
        raise BadInput(f"the data {path} refers to other files ({name}), which are never read", hint)


def read_zarr(path: Path, table: DataTable, memory_limit: int) -> Columns:
    """An array of a Zarr store, in windows of whole chunks."""
    zarr = require_extra("zarr", "data")
    path.stat()
    try:
        opened = zarr.open(store=str(path), mode="r")
        if isinstance(opened, zarr.Array):
            return _chunked(path, "", opened, table)
        name = _only(path, [name for name, _ in opened.arrays()], table.dataset.strip("/"))
        return _chunked(path, name, opened[name], table)
    except (ValueError, KeyError, FileNotFoundError, zipfile.BadZipFile):
        raise BadInput(f"the data {path} is not a Zarr store, or is damaged", "write it again") from None


def _chunked(path: Path, name: str, dataset: Any, table: DataTable) -> Columns:
    place = f"{path} ({name})" if name else str(path)
    check_array(place, dataset.shape, dataset.dtype)
    turned = table.orientation == "samples-in-rows"
    rows, columns = dataset.shape[::-1] if turned else dataset.shape
    chunk = (dataset.chunks or (1, 1))[0 if turned else 1]

    def fetch(start: int, stop: int) -> NDArray[Any]:
        try:
            return np.asarray(dataset[start:stop, :]).T if turned else np.asarray(dataset[:, start:stop])
        except (OSError, ValueError, RuntimeError):
            sentence = f"the data {place} is damaged at columns {start} to {stop - 1}"
            raise BadInput(sentence, "write it again, or restore it from a backup") from None

    return ChunkedColumns((rows, columns), fetch, min(chunk, columns))


def require_extra(module: str, name: str) -> Any:
    """Import an optional library; BadInput with the command that installs it when it is missing."""
    import importlib  # noqa: PLC0415

    try:
        return importlib.import_module(module)
    except ImportError:
        hint = f"install it: pip install 'dcfpca[{name}]'"
        raise BadInput(f"this format needs {module}, which is not installed", hint) from None


def _only(path: Path, names: list[str], wanted: str) -> str:
    if wanted and wanted not in names:
        raise BadInput(f"the data {path} has no array {wanted}", f"it has {', '.join(names[:20]) or 'none'}")
    if not wanted and len(names) != 1:
        listed = ", ".join(names[:20]) or "none"
        hint = "write the matrix alone, or name it in [data] dataset"
        raise BadInput(f"the data {path} holds the arrays {listed}, not exactly one", hint)
    return wanted or names[0]


def _not_an_array(path: Path, error: Exception) -> BadInput:
    if "Object arrays" in str(error) or "Python objects" in str(error):
        hint = "convert it to float64 first: numpy.save(path, array.astype(float))"
        return BadInput(f"the data {path} holds Python objects, which are never loaded", hint)
    return BadInput(f"the data {path} is not a NumPy array file, or is damaged", "write it again with numpy.save")


def check_array(place: Path | str, shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
    """Refuse what is not two-dimensional, not of real numbers, or empty."""
    if len(shape) != 2:
        hint = "one row per feature, one column per sample"
        raise BadInput(f"the data {place} has {len(shape)} dimensions, and a matrix has two", hint)
    if dtype.kind not in "fiub":
        hint = "convert it to float64: numpy.save(path, array.astype(float))"
        raise BadInput(f"the data {place} holds {dtype}, not real numbers", hint)
    if 0 in shape:
        raise BadInput(f"the data {place} is empty: {shape[0]} × {shape[1]}", "check how it was written")
