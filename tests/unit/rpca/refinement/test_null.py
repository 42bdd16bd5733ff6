from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from dcfpca.rpca.refinement.noise_scale import (
    MARGINAL_BINS,
    RESIDUAL_BINS,
    column_p_value,
    count_above,
    count_sizes,
    marginals,
    quantile,
)


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


def test_column_p_values_of_noise_are_uniform_or_larger() -> None:
    z = np.random.default_rng(0).standard_normal((30, 20_000))
    z[3, ::2] = np.nan
    p = column_p_value(2.0 * stats.norm.sf(np.abs(z)))
    for level in (0.01, 0.05, 0.2):
        assert np.mean(p <= level) <= 1.2 * level
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
