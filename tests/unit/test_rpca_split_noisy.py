"""Data that no low rank fits exactly: rounds do not forget rounding there, so the split must not bring any in."""

from __future__ import annotations

import numpy as np

from dcfpca.rpca.columns import split
from dcfpca.rpca.exchange import Outcome
from dcfpca.rpca.simulate import simulate
from dcfpca.rpca.subspace import SubspaceMethod


def test_a_narrow_run_that_has_not_converged_agrees_however_the_columns_are_dealt_out() -> None:
    rng = np.random.default_rng(4)
    levels = rng.standard_normal((19, 5)) * 0.5 ** np.arange(5) @ rng.standard_normal((5, 3000))
    M = levels + 0.05 * rng.standard_t(2, levels.shape)
    method = SubspaceMethod(rows=19, width=3, rounds=30, tolerance=1e-9)
    pooled, dealt = (simulate(method, split(M, counts)) for counts in ((3000,), (1, 999, 1000, 1000)))
    assert pooled.consensus.outcome is Outcome.OUT_OF_ROUNDS
    scores = [np.abs(M - run.low_rank).sum(axis=0) for run in (pooled, dealt)]
    np.testing.assert_allclose(scores[0], scores[1], rtol=0, atol=1e-9)
