"""Readers: what is read is what was written, and what cannot be used is refused by a sentence that names the file."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Literal

import numpy as np
import pytest

from dcfpca.errors import BadInput
from dcfpca.rpca.method import Columns
from participant.data.data_config import DataTable
from participant.data.facts import measure
from participant.data.readers import open_matrix


def open_columns(path: Path, orientation: Literal["", "samples-in-rows"] = "") -> Columns:
    return open_matrix(DataTable(path=path, orientation=orientation)).columns


@pytest.mark.parametrize("dtype", ["float64", "float32", "int16", "uint8", "bool"])
@pytest.mark.parametrize("suffix", ["npy", "npz"])
def test_every_real_dtype_is_read_as_float64(tmp_path: Path, dtype: str, suffix: str) -> None:
    matrix = np.arange(12).reshape(3, 4).astype(dtype)
    path = tmp_path / f"data.{suffix}"
    np.save(path, matrix) if suffix == "npy" else np.savez(path, M=matrix)
    columns = open_columns(path)
    assert columns.shape == (3, 4)
    block = columns.read(1, 3)
    assert block.dtype == np.float64
    np.testing.assert_array_equal(block, matrix[:, 1:3])


def test_samples_in_rows_are_turned(tmp_path: Path) -> None:
    matrix = np.random.default_rng(0).standard_normal((5, 3))
    np.save(tmp_path / "d.npy", matrix)
    columns = open_columns(tmp_path / "d.npy", orientation="samples-in-rows")
    assert columns.shape == (3, 5)
    np.testing.assert_array_equal(columns.read(0, 5), matrix.T)


def test_an_npy_file_is_mapped_not_loaded(tmp_path: Path) -> None:
    np.save(tmp_path / "d.npy", np.zeros((3, 4)))
    columns = open_columns(tmp_path / "d.npy")
    assert isinstance(columns.array, np.memmap)  # type: ignore[attr-defined]


def bad_files(tmp_path: Path) -> dict[str, tuple[Path, str]]:
    made = {
        "empty": b"",
        "garbage": b"this is not an array",
        "pickle": pickle.dumps([1, 2, 3]),
    }
    for name, content in made.items():
        (tmp_path / f"{name}.npy").write_bytes(content)
    np.save(tmp_path / "truncated.npy", np.zeros((30, 30)))
    (tmp_path / "truncated.npy").write_bytes((tmp_path / "truncated.npy").read_bytes()[:500])
    np.save(tmp_path / "objects.npy", np.array([[{}]], dtype=object), allow_pickle=True)
    np.save(tmp_path / "vector.npy", np.zeros(4))
    np.save(tmp_path / "complex.npy", np.zeros((2, 2), dtype=complex))
    np.save(tmp_path / "text.npy", np.array([["a"]]))
    np.save(tmp_path / "none.npy", np.zeros((4, 0)))
    np.savez(tmp_path / "two.npz", a=np.zeros((2, 2)), b=np.zeros((2, 2)))
    (tmp_path / "broken.npz").write_bytes(b"PK\x03\x04 broken")
    (tmp_path / "data.xls").write_bytes(b"x")
    words = {
        "empty.npy": "is empty",
        "garbage.npy": "not a NumPy array",
        "pickle.npy": "not a NumPy array",
        "truncated.npy": "damaged",
        "objects.npy": "never loaded",
        "vector.npy": "1 dimensions",
        "complex.npy": "complex128",
        "text.npy": "not real numbers",
        "none.npy": "is empty: 4 × 0",
        "two.npz": "a, b",
        "broken.npz": "damaged",
        "data.xls": "no known format",
        "nowhere.npy": "cannot be read",
        "nowhere.npz": "cannot be read",
    }
    return {name: (tmp_path / name, said) for name, said in words.items()}


def test_unusable_files_are_refused_by_name(tmp_path: Path) -> None:
    for path, said in bad_files(tmp_path).values():
        with pytest.raises(BadInput) as caught:
            open_columns(path)
        assert said in str(caught.value), path
        assert str(path) in str(caught.value)
        assert caught.value.hint


def test_missing_entries_are_counted(tmp_path: Path) -> None:
    matrix = np.ones((4, 6))
    matrix[0, 1] = matrix[2, 5] = np.nan
    np.save(tmp_path / "d.npy", matrix)
    facts = measure(open_columns(tmp_path / "d.npy"), tmp_path / "d.npy")
    assert (facts.rows, facts.columns, facts.missing) == (4, 6, 2)


def test_infinities_are_refused(tmp_path: Path) -> None:
    matrix = np.ones((4, 6))
    matrix[0, 3] = np.inf
    np.save(tmp_path / "d.npy", matrix)
    with pytest.raises(BadInput, match="infinite entry in sample 3"):
        measure(open_columns(tmp_path / "d.npy"), tmp_path / "d.npy")


def test_samples_without_any_entry_are_listed_and_not_counted(tmp_path: Path) -> None:
    matrix = np.ones((4, 6))
    matrix[:, [1, 3]] = np.nan
    matrix[0, 0] = np.nan
    np.save(tmp_path / "d.npy", matrix)
    facts = measure(open_columns(tmp_path / "d.npy"), tmp_path / "d.npy")
    assert (facts.columns, facts.missing, facts.empty) == (4, 1, (1, 3))
