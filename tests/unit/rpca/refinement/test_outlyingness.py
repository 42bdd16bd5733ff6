from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pytest
from numpy.typing import NDArray

from dcfpca.methods import method_of
from dcfpca.rpca.column_blocks import split
from dcfpca.rpca.method import FloatArray
from dcfpca.rpca.refinement.closing_plan import ClosingPlan
from dcfpca.rpca.refinement.outlyingness import Outlyingness, directions, searched_for, stand_still
from dcfpca.rpca.simulate import simulate
from dcfpca.spec import parse_spec


@dataclass
class Standard:
    rows: int

    @property
    def median(self) -> FloatArray:
        return np.zeros(self.rows)

    @property
    def spread(self) -> FloatArray:
        return np.ones(self.rows)

    @property
    def few(self) -> NDArray[np.bool_]:
        return np.zeros(self.rows, dtype=bool)

    @property
    def one_value(self) -> FloatArray:
        return np.zeros(self.rows)


def calm(M: FloatArray) -> NDArray[np.bool_]:
    found, features = Outlyingness.unknown(), Standard(len(M))
    for _ in range(6):
        parts = [found.counts(found.places(part, features)) for part in np.array_split(M, 3, axis=1)]
        found = found.after(np.sum(parts, axis=0), still=True, settled=False)
    return found.calm(M, features)


def noise(rows: int, columns: int) -> FloatArray:
    rng = np.random.default_rng(0)
    return 0.7 * rng.normal(size=(rows, columns)) + 0.7 * rng.normal(size=columns)


@pytest.mark.parametrize("rows", [3, 20, 300])
def test_nearly_all_normal_columns_take_part(rows: int) -> None:
    assert np.mean(calm(noise(rows, 500))) > 0.98


@pytest.mark.parametrize("rows", [5, 20, 300])
def test_a_fifth_of_columns_in_a_tight_cluster_takes_no_part(rows: int) -> None:
    M = noise(rows, 500)
    M[:, :100] = 3.0 * np.where(np.arange(rows) % 2, 1.0, -1.0)[:, None] + 0.1 * M[:, :100]
    assert not calm(M)[:100].any()
    assert calm(M)[100:].mean() > 0.8


def test_one_gross_entry_does_not_make_a_column_outlying() -> None:
    M = noise(20, 500)
    M[3, :200] = 1e6
    assert np.mean(calm(M)) > 0.95


def test_directions_are_of_unit_length_and_run_over_a_bounded_number_of_features() -> None:
    for rows in (2, 64, 1000):
        found = directions(rows).toarray()
        np.testing.assert_allclose(np.linalg.norm(found, axis=1), 1.0)
        assert np.count_nonzero(found, axis=1).max() == min(rows, 64)


def test_medians_of_few_columns_may_move_further_than_those_of_many() -> None:
    moves = (np.full(10, 0.4), np.full(10, 0.4))
    assert stand_still(moves, 0.3, 40.0)
    assert not stand_still(moves, 0.3, 4000.0)
    assert not stand_still((np.full(10, 0.6),), 0.3, 40.0)


def test_figures_are_searched_for_while_all_of_them_move_and_not_while_some_jump() -> None:
    jumping, other = np.array([2.0, 0.0, 2.0]), np.array([0.0, 0.1, 2.0])
    assert not searched_for((jumping, other), 0.3, 1e6)
    assert searched_for((jumping, other + 0.4), 0.3, 1e6)


@pytest.mark.parametrize(("factor", "known"), [(1.6, True), (8.0, False)])
def test_of_settled_units_two_rounds_are_averaged_and_columns_set_aside_if_these_stand_still(
    factor: float, known: bool
) -> None:
    places = Outlyingness.places(noise(5, 4000), Standard(5))
    before = replace(Outlyingness.unknown(), scale=factor * np.std(places, axis=1))
    counts = before.counts(places)
    moved, found = (before.after(counts, still=True, settled=settled) for settled in (False, True))
    assert moved.cut == 0.0
    assert (found.cut > 0.0) is known
    np.testing.assert_allclose(found.scale, np.sqrt(before.scale * moved.scale))
    np.testing.assert_allclose(found.centre, 0.5 * moved.centre)


def after_a_run(columns: int, bad: int, sites: int, seed: int) -> ClosingPlan:
    """With so many columns of three features at each site, the first of which lie far off."""
    rng = np.random.default_rng(seed)
    M = rng.uniform(0.0, 3.5, (3, columns * sites))
    M[:, :bad] = np.array([10.0, 20.0, 30.0])[:, None] + rng.normal(size=(3, bad))
    method = method_of(parse_spec({"rows": 3, "scaling": "robust", "min_cell": 5}))
    return ClosingPlan.of(simulate(method, split(M, (columns,) * sites)).consensus.broadcast)


@pytest.mark.parametrize("seed", range(4))
def test_just_the_odd_columns_are_set_aside_where_merged_counts_jump_over_the_gap_before_them(seed: int) -> None:
    # 11 of 75: the 85 % quantile, a feature's unit, lies now before the gap and now behind it.
    plan = after_a_run(75, 11, 1, seed)
    assert plan.outlying.cut > 0.0
    assert plan.taken == 64.0


@pytest.mark.parametrize("seed", range(4))
def test_nothing_is_set_aside_where_a_site_has_so_few_columns_that_merged_counts_tell_no_scale(seed: int) -> None:
    assert after_a_run(7, 0, 3, seed).outlying.cut == 0.0
