from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from dcfpca.rpca.refinement.noise_scale import marginals
from dcfpca.rpca.refinement.null import column_p_value, flag_cut, null_scale, two_sided
from dcfpca.rpca.refinement.size_histogram import MARGINAL_BINS, RESIDUAL_BINS, count_above, count_sizes, quantile


def test_quantiles_and_counts_are_those_of_the_sizes_to_a_bin() -> None:
    sizes = np.abs(np.random.default_rng(0).standard_normal((5, 20_000)))
    unit = np.array([0.1, 0.5, 1.0, 3.0, 9.0])
    counts = count_sizes(sizes, unit, RESIDUAL_BINS)
    for level in (0.5, 0.75, 0.9):
        np.testing.assert_allclose(
            quantile(counts, unit, level, RESIDUAL_BINS), np.quantile(sizes, level, axis=1), rtol=0.02
        )
    np.testing.assert_allclose(
        count_above(counts, unit, np.full(5, 1.2), RESIDUAL_BINS), np.count_nonzero(sizes > 1.2, axis=1), rtol=0.02
    )


def test_the_null_of_normal_residuals_is_their_deviation() -> None:
    sizes = np.abs(np.random.default_rng(0).standard_normal((8, 20_000)))
    counts = count_sizes(sizes, np.ones(8), RESIDUAL_BINS)
    np.testing.assert_allclose(null_scale(counts, np.ones(8), np.full(8, 20.0), np.zeros(8)), 1.0, rtol=0.05)


def test_heavy_tails_raise_the_null_up_to_half_the_spread() -> None:
    sizes = np.abs(np.random.default_rng(0).standard_t(1.5, (4, 20_000)))
    counts = count_sizes(sizes, np.ones(4), RESIDUAL_BINS)
    wide, narrow = (null_scale(counts, np.ones(4), np.full(4, spread), np.zeros(4)) for spread in (50.0, 1.0))
    assert (wide > 2.0 * np.quantile(sizes, 0.85, axis=1) / 1.44).all()
    assert (narrow < 1.2 * np.quantile(sizes, 0.85, axis=1) / 1.44).all()


def test_the_cut_keeps_the_false_discovery_rate() -> None:
    rng = np.random.default_rng(0)
    sizes = np.abs(rng.standard_normal((20, 5000)))
    hit = rng.random(sizes.shape) < 0.05
    sizes[hit] += rng.uniform(4.0, 30.0, np.count_nonzero(hit))
    counts = count_sizes(sizes, np.ones(20), RESIDUAL_BINS)
    cut = flag_cut(counts, np.ones(20), np.ones(20), rate=0.01)
    flagged = sizes > cut
    assert np.count_nonzero(flagged & ~hit) <= 0.015 * np.count_nonzero(flagged)
    assert np.count_nonzero(flagged & hit) > 0.95 * np.count_nonzero(hit)


def test_column_p_values_of_noise_are_uniform_or_larger() -> None:
    z = np.random.default_rng(0).standard_normal((30, 20_000))
    z[3, ::2] = np.nan
    p = column_p_value(z)
    for level in (0.01, 0.05, 0.2):
        assert np.mean(p <= level) <= 1.2 * level
    np.testing.assert_allclose(two_sided(np.array([1.96])), 2.0 * stats.norm.sf(1.96))
    assert column_p_value(np.full((4, 1), np.nan)) == 1.0


@pytest.mark.parametrize("guess", [0.0, 230.0])
def test_medians_and_spreads_are_found_by_a_few_rounds_of_counts(guess: float) -> None:
    values = 240.0 + 40.0 * np.random.default_rng(0).standard_normal((1, 3001))
    median, spread = np.array([guess]), np.array([100.0])
    for _ in range(6):
        off = values - median[:, None]
        above = count_sizes(np.where(off > 0.0, off, np.nan), spread, MARGINAL_BINS)
        below = count_sizes(np.where(off > 0.0, np.nan, -off), spread, MARGINAL_BINS)
        found = marginals(above, below, median, spread)
        median, spread = found.median, found.spread
    assert abs(median[0] - np.median(values)) < 2.0
    assert abs(spread[0] / 40.0 - 1.0) < 0.1
