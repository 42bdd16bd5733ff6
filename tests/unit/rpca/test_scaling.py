"""Robust centring and scaling around a stage."""

from __future__ import annotations

from collections.abc import Iterator
from typing import cast

import numpy as np
import pytest
import scipy

from dcfpca.methods import method_of
from dcfpca.rpca.column_blocks import ArrayColumns
from dcfpca.rpca.method import Findings, FloatArray, ResultBlock
from dcfpca.rpca.scaling import DEVIATION, MEDIAN, InUnits, found_units, share_unit_and_level, split_broadcast
from dcfpca.rpca.simulate import Simulation, exchange, simulate
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


def automatic(tables: list[FloatArray]) -> tuple[Simulation, str, bool]:
    """A run that scales by itself, what it says of its answer, and whether the features were left as they are."""
    method = method_of(parse_spec({"rows": len(tables[0]), "scaling": "auto"}))
    run = simulate(method, [ArrayColumns(table) for table in tables])
    verdict, (_, centre, _) = method.verdict(run.consensus), split_broadcast(run.consensus.broadcast, len(tables[0]))
    assert verdict is not None
    return run, verdict.sentence, bool((centre == 0.0).all())


@pytest.mark.parametrize("offset", [0.0, 1e6, 1e8])
@pytest.mark.parametrize("features", [slice(None), slice(3, 4)])
def test_noise_about_any_level_has_rank_zero_and_no_outliers(offset: float, features: slice) -> None:
    table = np.random.default_rng(0).normal(size=(12, 400))
    table[features] += offset
    run, said, _ = automatic(np.split(table, 4, axis=1))
    assert said.startswith("Rank 0"), said
    assert run.outliers.nnz == 0


@pytest.mark.parametrize(("offset", "rank"), [(0.0, 3), (1e3, 4)])
def test_exact_data_stays_exact_and_is_left_as_it_is_where_it_lies_about_zero(offset: float, rank: int) -> None:
    rng = np.random.default_rng(0)
    low_rank = rng.normal(size=(40, 3)) @ rng.normal(size=(3, 400))
    errors = np.where(rng.random(low_rank.shape) < 0.05, 20.0 * rng.normal(size=low_rank.shape), 0.0)
    run, said, as_it_is = automatic(np.split(low_rank + errors + offset, 4, axis=1))
    assert said.startswith(f"Exact: rank {rank} "), said
    assert as_it_is == (offset == 0.0)
    assert (found_units(run.consensus.broadcast, 40)[1] > 0.2).all()  # told all the same
    off = np.linalg.norm(run.low_rank - low_rank - offset) / np.linalg.norm(low_rank)
    assert off < 1e-9


def test_features_of_other_units_or_levels_are_scaled_and_those_that_hardly_vary_decide_nothing() -> None:
    median, deviation = np.array([0.0, 1.0, -2.0, 9.0]), np.array([1.0, 2.0, 1.5, 0.0])
    assert share_unit_and_level(median, deviation)
    assert not share_unit_and_level(median + np.array([0.0, 20.0, 0.0, 0.0]), deviation)
    assert not share_unit_and_level(median, deviation * np.array([1.0, 100.0, 0.01, 1.0]))
    assert not share_unit_and_level(median, np.zeros(4))


def test_a_coin_has_no_scale_of_the_digits_that_its_centre_is_found_by() -> None:
    centre, scale = units_of_coin(-0.044641636506989144, 0.05068011873981862)
    assert abs(centre + 0.044641636506989144) < 1e-8
    assert scale == 1.0


def units_of_coin(one: float, other: float) -> tuple[float, float]:
    """What a run finds of a feature that has the one value more often, beside three others."""
    draw = np.random.default_rng(3)
    M = np.vstack([np.where(np.arange(120) % 20 < 11, one, other), draw.normal(size=(3, 120))])
    method = method_of(parse_spec({"rows": 4, "rank": 1, "scaling": "robust", "closing_rounds": False, "rounds": 2}))
    consensus = simulate(method, [ArrayColumns(part) for part in np.split(M, 3, axis=1)]).consensus
    centre, scale = found_units(consensus.broadcast, 4)
    return float(centre[0]), float(scale[0])
