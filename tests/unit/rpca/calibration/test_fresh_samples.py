"""Samples that had no part in a run: what was estimated is less sure for them."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from dcfpca.methods import method_of
from dcfpca.rpca.calibration.fresh_samples import fresh_distance_p_value, fresh_null
from dcfpca.rpca.column_blocks import ArrayColumns
from dcfpca.rpca.refinement.closing_plan import ClosingPlan
from dcfpca.rpca.refinement.scoring import transform_columns
from dcfpca.rpca.simulate import simulate
from dcfpca.spec import parse_spec

ROWS, DRAWN = 20, 2000


def fitted(columns: int) -> tuple[ClosingPlan, np.ndarray]:
    """The plan of a run over normal samples of three factors, and p-values of fresh ones."""
    rng = np.random.default_rng(5)
    loadings = rng.normal(size=(3, ROWS)) * [[1.5], [1.0], [0.7]]
    own, fresh = (rng.normal(size=(n, 3)) @ loadings + 0.8 * rng.normal(size=(n, ROWS)) for n in (columns, DRAWN))
    method = method_of(parse_spec({"rows": ROWS, "min_cell": 1}))
    plan = ClosingPlan.of(simulate(method, [ArrayColumns(own.T)]).consensus.broadcast)
    return plan, transform_columns(plan, fresh.T).scored.p_value


def test_hotelling_distances_of_fresh_normal_samples_have_uniform_p_values() -> None:
    rng, columns, rank = np.random.default_rng(1), 20, 3
    p = []
    for _ in range(DRAWN):
        own, fresh = rng.normal(size=(columns, rank)), rng.normal(size=rank)
        off = fresh - own.mean(axis=0)
        p.append(fresh_distance_p_value(np.array([off @ np.linalg.solve(np.cov(own.T), off)]), rank, columns)[0])
    for level in (0.05, 0.01):
        low, high = (float(stats.binom.ppf(end, DRAWN, level)) for end in (0.0005, 0.9995))
        assert low <= np.sum(np.array(p) <= level) <= high


@pytest.mark.slow
def test_the_null_of_fresh_samples_lies_further_out_the_fewer_the_run_had() -> None:
    shifts = []
    for columns in (60, 400):
        plan, _ = fitted(columns)
        found = fresh_null(plan)
        assert found.scale >= plan.sample_null.scale
        shifts.append(found.location - plan.sample_null.location)
    assert shifts[0] > 2.0 * shifts[1] > 0.0


@pytest.mark.slow
def test_fresh_normal_samples_are_seldom_odd_after_a_run_of_a_hundred() -> None:
    _, p = fitted(100)
    assert np.mean(p <= 0.05) <= 0.1
    assert np.mean(p <= 0.01) <= 0.03
