"""Robust centring and scaling around a stage."""

from __future__ import annotations

from collections.abc import Iterator
from typing import cast

import numpy as np
import scipy

from dcfpca.methods import method_of
from dcfpca.rpca.column_blocks import ArrayColumns
from dcfpca.rpca.method import Findings, FloatArray, ResultBlock
from dcfpca.rpca.scaling import DEVIATION, MEDIAN, InUnits
from dcfpca.rpca.simulate import exchange
from dcfpca.rpca.stage_list import StagedSite
from dcfpca.spec import parse_spec


def test_a_flagged_entry_that_equals_the_normal_part_stays_flagged_in_the_datas_units() -> None:
    method = method_of(parse_spec({"rows": 3, "scaling": "robust", "max_rank": 1}))
    site = method.site(ArrayColumns(np.ones((3, 2))))
    assert site.view.scaled is not None
    site.view.scaled.centre, site.view.scaled.scale = np.array([1.0, 2.0, 3.0]), np.array([2.0, 4.0, 8.0])
    stage = method.stages[-1]
    assert isinstance(stage, InUnits)
    S = scipy.sparse.csc_array((np.array([0.0, 5.0]), (np.array([1, 2]), np.array([0, 1]))), shape=(3, 2))
    one = np.ones(2)
    found = Findings(expected=one, z=one, values=one, exceeded_by=one, consortium_z=one)
    inner = ResultBlock(0, np.zeros((3, 2)), S, np.zeros((2, 1)), findings=found)

    class Ended:
        def finish(self, site: StagedSite, asked: object) -> Iterator[ResultBlock]:
            yield inner

    stage.inner = cast(InUnits, Ended())
    (block,) = stage.finish(site, method.begin())
    np.testing.assert_array_equal(block.S.indices, [1, 2])
    np.testing.assert_array_equal(block.S.data, [0.0, 40.0])
    assert block.findings is not None
    np.testing.assert_array_equal(block.findings.expected, [6.0, 11.0])


def found(tables: list[FloatArray], min_cell: int) -> tuple[FloatArray, FloatArray, int]:
    """The centre and scale of every feature, and the rounds that it took to find them."""
    method = method_of(parse_spec({"rows": len(tables[0]), "scaling": "robust", "min_cell": min_cell, "max_rank": 2}))
    sites, consensus = [method.site(ArrayColumns(table)) for table in tables], method.begin()
    while consensus.stage in (MEDIAN, DEVIATION):
        consensus = method.advance(consensus, exchange(method, consensus, sites))
    centre, scale = np.split(consensus.broadcast.scalars[-2 * len(tables[0]) :], 2)
    return centre, scale, consensus.round


def test_medians_are_near_the_true_ones_where_small_cells_are_merged_and_take_no_more_rounds() -> None:
    rng = np.random.default_rng(4)
    tables = [3.0 + rng.normal(size=(6, count)) for count in (150, 90, 60)]
    every = np.hstack(tables)
    true = np.median(every, axis=1)
    exact, merged = found(tables, 1), found(tables, 5)
    np.testing.assert_allclose(exact[0], true, atol=0.02)
    np.testing.assert_allclose(merged[0], true, atol=0.15)  # of a deviation of one
    np.testing.assert_allclose(merged[1], 1.0, atol=0.2)
    assert merged[2] <= exact[2]


def test_a_value_that_many_have_is_found_exactly_though_cells_are_merged() -> None:
    rng = np.random.default_rng(5)
    tables = [np.where(rng.random((3, 80)) < 0.7, 0.0, rng.normal(size=(3, 80))) for _ in range(3)]
    centre, scale, _ = found(tables, 5)
    np.testing.assert_array_equal(centre, 0.0)
    np.testing.assert_array_equal(scale, 1.0)
