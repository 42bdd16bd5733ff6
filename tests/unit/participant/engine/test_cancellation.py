"""Cancelled local work stops before its next block of columns, however much of it is left."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dcfpca.methods import method_of
from dcfpca.rpca.column_blocks import ArrayColumns
from dcfpca.rpca.method import Columns, Consensus, FloatArray, Total
from dcfpca.spec import parse_spec
from participant.data.matrix import WindowedColumns
from participant.engine.progress import Cancellation, MeteredColumns, ProgressMeter, WorkCancelled
from participant.engine.thread_engine import Engine

ROWS, COLUMNS, WINDOW = 6, 60, 10
ENDLESS = {"local_iterations": 10**12}


class CancellingColumns:
    """Columns that cancel the work during the read with this number, and count reads."""

    def __init__(self, matrix: FloatArray, cancellation: Cancellation, at: int) -> None:
        self.columns, self.cancellation, self.at = ArrayColumns(matrix), cancellation, at
        self.reads = 0

    @property
    def shape(self) -> tuple[int, int]:
        return self.columns.shape

    def read(self, start: int, stop: int) -> FloatArray:
        self.reads += 1
        if self.reads == self.at:
            self.cancellation.cancel()
        return self.columns.read(start, stop)


def matrix() -> FloatArray:
    return np.random.default_rng(0).standard_normal((ROWS, COLUMNS))


def after_the_opening(spec: Any) -> tuple[Any, Consensus]:
    """The method of the spec and the consensus of its first round."""
    method = method_of(spec)
    begun = method.begin()
    opening = method.site(ArrayColumns(matrix())).answer(begun)
    return method, method.advance(begun, Total(opening, 1))


@pytest.mark.parametrize("windows", [False, True], ids=["whole", "in parts"])
def test_endless_local_iterations_end_with_the_read_that_follows_a_cancellation(windows: bool, tmp_path: Path) -> None:
    spec = parse_spec({"rows": ROWS, "rank": 2, "method": "gradient", "gradient": ENDLESS})
    method, consensus = after_the_opening(spec)
    cancellation = Cancellation()
    told = CancellingColumns(matrix(), cancellation, at=20)
    there: Columns = WindowedColumns(told, WINDOW) if windows else told
    columns = MeteredColumns(there, ProgressMeter(lambda _: None), cancellation)
    engine = Engine(1, scratch=tmp_path)
    with pytest.raises(WorkCancelled):
        engine.site(method, columns).answer(consensus)
    # Two threads read windows, so that one more may be under way; without cancellation there would be 10¹² of them.
    assert told.reads <= (22 if windows else 20)
    engine.close()


def test_work_within_one_part_is_cancelled_between_its_blocks() -> None:
    cancellation = Cancellation()
    columns = MeteredColumns(ArrayColumns(matrix()), None, cancellation)
    np.testing.assert_array_equal(columns.read(0, 5), matrix()[:, :5])
    cancellation.cancel()
    with pytest.raises(WorkCancelled):
        columns.read(5, 10)
