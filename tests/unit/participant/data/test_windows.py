"""A window over columns gives what the columns give, in any order of reading, and reads each stretch once per pass."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dcfpca.errors import BadInput
from participant.data.matrix import ChunkedColumns, WindowedColumns, window_width

MATRIX = np.random.default_rng(0).standard_normal((3, 23))


@given(st.integers(1, 30), st.lists(st.tuples(st.integers(0, 22), st.integers(1, 23)), max_size=8))
def test_any_order_of_reading_gives_the_matrix(width: int, reads: list[tuple[int, int]]) -> None:
    columns = WindowedColumns(ChunkedColumns((3, 23), lambda start, stop: MATRIX[:, start:stop], 1), width)
    for start, length in reads:
        stop = min(start + length, 23)
        np.testing.assert_array_equal(columns.read(start, stop), MATRIX[:, start:stop])


@pytest.mark.parametrize("width", [2, 4, 5, 7])
def test_a_pass_reads_every_column_once_whether_or_not_blocks_end_with_windows(width: int) -> None:
    fetched: list[tuple[int, int]] = []

    def fetch(start: int, stop: int) -> np.ndarray[tuple[int, int], np.dtype[np.float64]]:
        fetched.append((start, stop))
        return MATRIX[:, start:stop]

    columns = WindowedColumns(ChunkedColumns((3, 23), fetch, 1), 6)
    for start in range(0, 23, width):
        stop = min(start + width, 23)
        np.testing.assert_array_equal(columns.read(start, stop), MATRIX[:, start:stop])
    assert fetched == [(0, 6), (6, 12), (12, 18), (18, 23)]


def test_a_column_alone_is_read_alone_and_no_window_with_it() -> None:
    fetched: list[tuple[int, int]] = []

    def fetch(start: int, stop: int) -> np.ndarray[tuple[int, int], np.dtype[np.float64]]:
        fetched.append((start, stop))
        return MATRIX[:, start:stop]

    columns = WindowedColumns(ChunkedColumns((3, 23), fetch, 1), 6)
    for start in (17, 3, 9):
        np.testing.assert_array_equal(columns.read(start, start + 1), MATRIX[:, start : start + 1])
    assert fetched == [(17, 18), (3, 4), (9, 10)]


def test_what_goes_wrong_ahead_is_told_when_it_is_wanted() -> None:
    def fetch(start: int, stop: int) -> np.ndarray[tuple[int, int], np.dtype[np.float64]]:
        if start:
            raise BadInput("the disk is gone")
        return MATRIX[:, start:stop]

    columns = WindowedColumns(ChunkedColumns((3, 23), fetch, 1), 10)
    columns.read(0, 9)
    with pytest.raises(BadInput, match="disk is gone"):
        columns.read(10, 12)


def test_windows_hold_whole_chunks() -> None:
    assert window_width(rows=1000, chunk=100, window_bytes=8 * 1000 * 250) == 200
    assert window_width(rows=1000, chunk=300, window_bytes=8 * 1000 * 250) == 300
    assert window_width(rows=10**9) == 1


def test_who_asks_for_a_window_gets_it_as_it_was_read_and_nothing_is_held() -> None:
    fetched: list[tuple[int, int]] = []

    def fetch(start: int, stop: int) -> np.ndarray[tuple[int, int], np.dtype[np.float64]]:
        fetched.append((start, stop))
        return MATRIX[:, start:stop]

    columns = WindowedColumns(ChunkedColumns((3, 23), fetch, 1), 10)
    for start, stop in [(20, 23), (0, 10), (10, 20)]:
        np.testing.assert_array_equal(columns.read(start, stop), MATRIX[:, start:stop])
    assert fetched == [(20, 23), (0, 10), (10, 20)]
