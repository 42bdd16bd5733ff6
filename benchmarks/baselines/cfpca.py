"""CF-PCA: the paper's centralized variant, which is Algorithm 1 with one site and one local iteration per round."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from benchmarks.baselines.result import BaselineResult, Ending, Observe, complete_matrix
from dcfpca.rpca.column_blocks import ArrayColumns
from dcfpca.rpca.gradient.settings import GradientSettings
from dcfpca.rpca.gradient.stages import GradientSolver, gradient_method
from dcfpca.rpca.method import Consensus, FloatArray, Outcome
from dcfpca.rpca.simulate import collect, simulate
from dcfpca.rpca.stage import Site

ENDINGS = {
    Outcome.CONVERGED: Ending.CONVERGED,
    Outcome.OUT_OF_ROUNDS: Ending.OUT_OF_ITERATIONS,
    Outcome.DIVERGED: Ending.DIVERGED,
}


def cf_pca(
    M: FloatArray,
    width: int,
    *,
    settings: GradientSettings | None = None,
    tolerance: float = 0.0,
    iterations: int = 200,
    seed: int = 0,
    observe: Observe | None = None,
) -> BaselineResult:
    """Robust PCA with `width` factors. `settings.local_iterations` must be 1, which the default has."""
    M = complete_matrix(M)
    settings = settings or GradientSettings(local_iterations=1)
    method = gradient_method(GradientSolver(M.shape[0], width, iterations, tolerance, seed, settings))

    def look(now: Consensus, sites: Sequence[Site]) -> None:
        if observe is not None and (now.outcome is not None or now.round > 1):
            result = collect(sites[0], now)
            observe(now.round if now.outcome else now.round - 1, result.L, result.S.toarray())

    run = simulate(method, [ArrayColumns(M)], look)
    L, S = run.low_rank, run.outliers.toarray()
    residual = float(np.linalg.norm(M - L - S) / max(float(np.linalg.norm(M)), np.finfo(float).tiny))
    ending = ENDINGS[run.consensus.outcome or Outcome.OUT_OF_ROUNDS]
    return BaselineResult(L, S, width, len(run.history) - 1, residual, ending)
