"""Progress is a percentage, told now and then, and never more than a percentage."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from dcfpca.rpca.column_blocks import ArrayColumns, blocks
from dcfpca.spec import parse_spec
from dcfpca.terms import Terms
from dcfpca.v1 import rounds_pb2 as pb
from dcfpca.v1.types_pb2 import RoundRef
from participant.contract import Contract, EgressViolation, progress_item
from participant.engine.progress import MeteredColumns, ProgressMeter


def test_percentages_are_told_at_most_once_in_a_while() -> None:
    told: list[int] = []
    clock = iter(np.arange(0.0, 100.0, 0.5).tolist())
    meter = ProgressMeter(told.append, every=2.0, clock=lambda: next(clock))
    meter.begin(20)
    for _ in range(20):
        meter.advance(1)
    assert told == [20, 40, 60, 80, 99]


def test_metered_columns_are_the_columns() -> None:
    told: list[int] = []
    matrix = np.random.default_rng(0).standard_normal((4, 10))
    meter = ProgressMeter(told.append, every=0.0)
    columns = MeteredColumns(ArrayColumns(matrix), meter)
    meter.begin(10)
    for start, stop in blocks(columns, 8 * 4 * 5):
        np.testing.assert_array_equal(columns.read(start, stop), matrix[:, start:stop])
    assert told == [50, 99]


def test_a_gradient_step_reads_the_columns_once_per_local_iteration() -> None:
    def reads(**keys: Any) -> int:
        return Terms.of(parse_spec({"rows": 3, "rank": 1, **keys})).method.solver.reads_per_round

    assert reads() == 1
    assert reads(method="gradient", gradient={"local_iterations": 7}) == 7


def test_nothing_but_a_percentage_leaves() -> None:
    contract = Contract("run", "a", Terms.of(parse_spec({"rows": 3, "rank": 1})))
    ref = RoundRef(run_id="run", round=2, attempt=1)
    assert progress_item(contract, pb.ReportProgressRequest(ref=ref, percent=40)).shape == "40 %"
    with pytest.raises(EgressViolation):
        progress_item(contract, pb.ReportProgressRequest(ref=ref, percent=101))
    with pytest.raises(EgressViolation):
        progress_item(contract, pb.ReportProgressRequest(ref=RoundRef(run_id="other"), percent=1))
