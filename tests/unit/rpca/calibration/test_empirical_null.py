"""The null follows the data's own tails, and gross entries do not pass for a tail."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from dcfpca.rpca.calibration.empirical_null import SIZE_BINS, Null, fit_null, levels_of_side, pooled, units_by_side
from dcfpca.rpca.refinement.noise_scale import count_sizes
from dcfpca.rpca.small_cells import Merging, merge_sides

NO_LIMIT = np.full(2, np.inf)


def counted(sizes: NDArray[np.float64]) -> NDArray[np.float64]:
    return count_sizes(np.abs(np.atleast_2d(sizes)), np.ones(len(np.atleast_2d(sizes))), SIZE_BINS)


def null_of(z: NDArray[np.float64]) -> Null:
    return fit_null(counted(z)[0], 0.15)


def test_normal_deviations_are_hardly_ever_flagged() -> None:
    z = np.random.default_rng(1).normal(size=50_000)
    null = null_of(z)
    assert np.mean(np.abs(z) > null.cut) <= 1e-4
    assert null.tail(np.array([2.0]))[0] == pytest.approx(0.0455, rel=0.2)


@pytest.mark.parametrize("freedom", [3, 5])
def test_heavy_tails_are_hardly_ever_flagged(freedom: int) -> None:
    z = np.random.default_rng(2).standard_t(freedom, size=50_000)
    assert np.mean(np.abs(z) > null_of(z).cut) <= 2e-3


def test_gross_entries_among_normal_ones_are_flagged() -> None:
    rng = np.random.default_rng(3)
    z = rng.normal(size=20_000)
    z[:600] = rng.uniform(5.0, 15.0, 600)
    null = null_of(z)
    assert np.mean(z[:600] > null.cut) > 0.98
    assert np.mean(np.abs(z[600:]) > null.cut) < 1e-3
    assert null.wrong == pytest.approx(0.03, rel=0.5)


def test_one_gross_entry_in_a_small_table_is_flagged() -> None:
    z = np.random.default_rng(4).normal(size=2000)
    z[0] = 60.0
    assert null_of(z).cut < 60.0


def test_units_follow_the_spread_of_their_side() -> None:
    z = np.abs(np.random.default_rng(5).normal(size=(2, 5000)) * np.array([[1.0], [3.0]]))
    assert units_by_side(counted(z), np.zeros(2, bool), NO_LIMIT) == pytest.approx([1.0, 3.0], rel=0.1)


def test_the_unit_of_a_coin_is_that_of_its_rarer_side() -> None:
    sizes = np.array([[0.1] * 960 + [5.0] * 40])
    assert 5.0 / units_by_side(counted(sizes), np.ones(1, bool), NO_LIMIT[:1])[0] < 2.0


def test_sizes_that_no_usual_value_has_do_not_make_the_unit_of_a_coin() -> None:
    sizes = np.array([[0.1] * 800 + [2.0] * 160 + [9.0] * 40])
    unit = units_by_side(counted(sizes), np.ones(1, bool), np.array([3.0]))[0]
    assert 9.0 / unit > 3.5 > 2.0 / unit


def test_merged_counts_of_small_sites_tell_the_unit_of_all() -> None:
    rng, sites, least = np.random.default_rng(7), 4, 5
    units = []
    for _ in range(60):
        both = np.zeros((2, 1, SIZE_BINS.count))
        for z in rng.standard_t(5, size=(sites, 30)):
            both += np.array(merge_sides(counted(z[z > 0.0]), counted(z[z <= 0.0]), least))
        share = both.sum(axis=2) / both.sum(axis=(0, 2))
        levels = levels_of_side(share[0], Merging(30.0, sites, least))
        units.append(units_by_side(both[0], np.zeros(1, bool), NO_LIMIT[:1], levels)[0])
    exact = np.abs(rng.standard_t(5, size=100_000))
    assert np.mean(units) == pytest.approx(units_by_side(counted(exact), np.zeros(1, bool), NO_LIMIT[:1])[0], rel=0.08)


def test_pooled_counts_are_all_counts_in_their_units() -> None:
    z = np.abs(np.random.default_rng(6).normal(size=(3, 4000)))
    units = np.array([0.5, 1.0, 4.0])
    total = pooled(counted(z * units[:, None]), units)
    assert total.sum() == pytest.approx(12_000)
    assert np.abs(np.cumsum(total) - np.cumsum(counted(z).sum(axis=0))).max() < 400
