"""The compiled loops of a refinement round say what numpy says."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from dcfpca.rpca.kernels.refinement_loops import refinement_loops
from dcfpca.rpca.method import FloatArray
from dcfpca.rpca.refinement import alternating_fit, noise_scale
from dcfpca.rpca.refinement.alternating_fit import ColumnModel, fit_columns, objective_by_column, pulls
from dcfpca.rpca.refinement.noise_scale import MARGINAL_BINS, RESIDUAL_BINS, Bins, count_sides

pytestmark = pytest.mark.skipif(refinement_loops() is None, reason="there is nothing compiled without numba")


@pytest.fixture
def both(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[], Any]], tuple[Any, Any]]:
    def computed(work: Callable[[], Any]) -> tuple[Any, Any]:
        compiled = work()
        for module in (alternating_fit, noise_scale):
            monkeypatch.setattr(module, "refinement_loops", lambda: None)
        return compiled, work()

    return computed


def columns(width: int, rows: int = 90) -> tuple[ColumnModel, FloatArray]:
    """Columns with noise, gross errors and gaps, stored by columns as a file may have them."""
    rng = np.random.default_rng(3)
    U = np.linalg.qr(rng.normal(size=(rows, width)))[0]
    noise = rng.uniform(0.1, 0.3, rows)
    M = 5.0 * U @ rng.normal(size=(width, 40)) + noise[:, None] * rng.normal(size=(rows, 40))
    M[rng.random(M.shape) < 0.05] += 20.0
    M[rng.random(M.shape) < 0.05] = np.nan
    return ColumnModel(U, np.full(rows, 0.01), noise, np.full(width, 0.01)), np.asfortranarray(M)


@pytest.mark.parametrize("width", [3, 20])
def test_coefficients_and_objective_are_those_of_numpy(both: Any, width: int) -> None:
    model, M = columns(width)
    compiled, plain = both(lambda: fit_columns(model, M, None))
    # Wide fits begin in single precision: their rounding is far below the noise.
    most = 1e-4 * model.noise.min() if width > alternating_fit.SOLVED_WIDTH else 1e-11
    assert np.abs(compiled - plain).max() < most
    V = np.ones((40, width))
    compiled, plain = both(lambda: objective_by_column(model, M, V))
    assert np.allclose(compiled, plain, rtol=1e-12)


def test_pulls_and_weights_are_those_of_numpy_and_of_calm_columns_alone(both: Any) -> None:
    model, M = columns(3)
    calm = np.arange(40) % 4 > 0
    compiled, plain = both(lambda: pulls(M, np.zeros(M.shape), model.noise, calm))
    assert np.allclose(compiled[0], plain[0], atol=1e-12)
    assert np.allclose(compiled[1], plain[1], atol=1e-12)
    assert not compiled[0][:, ~calm].any()


@pytest.mark.parametrize("bins", [RESIDUAL_BINS, MARGINAL_BINS, Bins(4, 24)])
def test_counts_are_those_of_numpy_on_every_edge_too(both: Any, bins: Bins) -> None:
    rng, unit = np.random.default_rng(0), np.array([1.0, 0.3, 1e6])
    edges = np.concatenate([[0.0], bins.edges, 0.5 * bins.edges, rng.lognormal(0.0, 4.0, 200), [np.nan]])
    off = unit[:, None] * np.concatenate([edges, -edges])
    compiled, plain = both(lambda: count_sides(off, unit, bins, 1e-9))
    for one, other in zip(compiled, plain, strict=True):
        assert np.array_equal(one, other)
    assert compiled[0].sum() + compiled[1].sum() == np.count_nonzero(~np.isnan(off))
