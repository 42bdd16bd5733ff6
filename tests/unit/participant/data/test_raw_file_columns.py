"""Columns read from files of raw numbers: what stands in the file, and no thread per file."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Never

import numpy as np
import pytest

from participant.data import raw_file_columns
from participant.data.raw_file_columns import RawFileColumns, raw_columns_of

MATRIX = np.random.default_rng(0).standard_normal((5, 8))


def by_columns(folder: Path, name: str = "data") -> RawFileColumns:
    path = folder / f"{name}.npy"
    np.save(path, MATRIX.T)
    return raw_columns_of(path, np.load(path, mmap_mode="r"), turned=True)


def test_any_range_of_columns_is_what_the_file_holds(tmp_path: Path) -> None:
    columns = by_columns(tmp_path)
    assert columns.shape == MATRIX.shape
    for start, stop in ((0, 8), (2, 5), (7, 8), (3, 3)):
        np.testing.assert_array_equal(columns.read(start, stop), MATRIX[:, start:stop])


def test_many_files_share_one_thread(tmp_path: Path) -> None:
    before = threading.active_count()
    files = [by_columns(tmp_path, str(number)) for number in range(20)]
    for columns in files:
        columns.read(0, 4)
    assert threading.active_count() <= before + 1


def test_a_file_is_read_where_no_thread_can_be_had(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> Never:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(raw_file_columns, "_advising_thread", refuse)
    np.testing.assert_array_equal(by_columns(tmp_path).read(0, 8), MATRIX)
