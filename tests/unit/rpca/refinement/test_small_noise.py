"""Noise many orders of magnitude below the data: closing rounds keep what the fit has found."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from threadpoolctl import threadpool_limits

from dcfpca.methods import method_of
from dcfpca.rpca.column_blocks import ArrayColumns
from dcfpca.rpca.method import FloatArray
from dcfpca.rpca.refinement.alternating_fit import ColumnModel, fit_freely
from dcfpca.rpca.refinement.noise_scale import RESIDUAL_BINS, count_sizes, fit_noise
from dcfpca.rpca.simulate import simulate
from dcfpca.rpca.synthetic import Recipe, generate
from dcfpca.spec import parse_spec


def error_and_rounds(shape: tuple[int, int], rank: int, noise: float, **keys: Any) -> tuple[float, int]:
    """Relative error of L, and rounds, of a run over three sites with a twentieth of gross errors and this noise."""
    m, n = shape
    counts = (n // 3, n // 3, n - 2 * (n // 3))
    problem = generate(Recipe(rows=m, columns=n, rank=rank, sparsity=0.05, counts=counts), 3)
    rng = np.random.default_rng(1)
    sites = [ArrayColumns(own.array + noise * rng.normal(size=own.array.shape)) for own in problem.sites()]
    spec = parse_spec({"rows": m, "rank": rank, "method": "subspace", **keys})
    with threadpool_limits(1):
        run = simulate(method_of(spec), sites)
    return float(np.linalg.norm(run.low_rank - problem.L) / np.linalg.norm(problem.L)), run.consensus.round


@pytest.mark.parametrize(("shape", "rank"), [((24, 90), 2), ((60, 300), 3), ((20, 1000), 2)])
@pytest.mark.parametrize("noise", [1e-6, 1e-4])
def test_the_low_rank_part_is_as_exact_as_the_noise_allows(shape: tuple[int, int], rank: int, noise: float) -> None:
    error, rounds = error_and_rounds(shape, rank, noise)
    assert error < noise
    assert rounds <= 60  # waiting for noise to vanish that is there to stay took up to 116


@pytest.mark.parametrize(("shape", "rank", "rounds"), [((24, 33), 2, 8), ((200, 200), 5, 7), ((20, 1000), 2, 8)])
def test_a_fit_cut_short_on_exact_data_ends_no_further_off(shape: tuple[int, int], rank: int, rounds: int) -> None:
    cut_short: dict[str, Any] = {"rounds": rounds, "tolerance": 0.0}
    without, _ = error_and_rounds(shape, rank, 0.0, closing_rounds=False, **cut_short)
    error, _ = error_and_rounds(shape, rank, 0.0, **cut_short)
    assert error < max(without, 1e-6)


def test_errors_are_not_the_noise_of_a_feature_that_the_model_explains() -> None:
    """Nine tenths of the residuals lie below all bins, and the others are gross. Of a feature with one value in most
    entries, the others are its values."""
    residuals = np.full((2, 100), 1e-9)
    residuals[:, :10] = 5.0
    unit, spread = np.full(2, 1e-3), np.ones(2)
    counts = count_sizes(residuals, unit, RESIDUAL_BINS)
    explained, one_value = fit_noise(counts, unit, spread, leverage=np.zeros(2), one_value=np.array([0.1, 0.9]))
    assert explained == pytest.approx(1e-3)
    assert one_value > 10.0 * explained


def test_a_column_with_errors_on_features_of_leverage_is_freed() -> None:
    m, rng = 20, np.random.default_rng(0)
    U = np.linalg.qr(rng.normal(size=(m, 2)))[0]
    model = ColumnModel(U, np.zeros(m), np.full(m, 1e-3), np.full(2, 1e-6))
    V = rng.normal(size=(300, 2))
    M: FloatArray = U @ V.T + 1e-3 * rng.normal(size=(m, 300))
    most = np.argsort(-np.sum(U**2, axis=1))[:3]
    M[most] += 100.0 * rng.choice([-1.0, 1.0], (3, 300))
    found = fit_freely(model, M)
    assert np.abs(found - V).max() < 0.02
