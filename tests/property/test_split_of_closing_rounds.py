"""However the columns of a table are dealt out to sites: the same rank, expected values and null."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dcfpca.rpca.column_blocks import ArrayColumns, split
from dcfpca.rpca.method import FloatArray, TensorMessage
from dcfpca.rpca.refinement.closing import with_closing_rounds
from dcfpca.rpca.refinement.closing_plan import ClosingPlan
from dcfpca.rpca.scaling import in_robust_units, split_broadcast
from dcfpca.rpca.simulate import simulate
from dcfpca.rpca.stage_list import Method
from dcfpca.rpca.subspace.fit import subspace_method
from dcfpca.rpca.subspace.solver import SubspaceSolver

ROWS, COLUMNS = 12, 160


def _table(seed: int, noise: float) -> FloatArray:
    """Low rank and noise, gross errors, gaps, and features of whole numbers and of two values."""
    rng = np.random.default_rng(seed)
    M = rng.standard_normal((ROWS, 2)) @ rng.standard_normal((2, COLUMNS))
    M += noise * rng.standard_normal(M.shape)
    M[3], M[7] = np.round(2.0 * M[3]), M[7] > 0.0
    M = np.where(rng.random(M.shape) < 0.04, M + 20.0 * rng.choice([-1.0, 1.0], M.shape), M)
    return np.where(rng.random(M.shape) < 0.05, np.nan, M)


def _method(scaled: bool) -> Method:
    fit = subspace_method(SubspaceSolver(ROWS, 5, 100, 1e-9, fixed_rank=False))
    closed = with_closing_rounds(fit, fixed_rank=False)
    return in_robust_units(closed) if scaled else closed


@pytest.mark.slow
@settings(max_examples=12, deadline=None)
@given(
    seed=st.integers(0, 2**16),
    noise=st.sampled_from([0.1, 0.5, 2.0]),
    cuts=st.sets(st.integers(1, COLUMNS - 1), max_size=5),
    scaled=st.booleans(),
)
def test_the_split_changes_neither_rank_nor_null_nor_expected_values(
    seed: int, noise: float, cuts: set[int], scaled: bool
) -> None:
    M, method = _table(seed, noise), _method(scaled)
    counts = tuple(int(count) for count in np.diff([0, *sorted(cuts), COLUMNS]))
    whole, parts = simulate(method, [ArrayColumns(M)]), simulate(method, split(M, counts))
    assert whole.consensus.round == parts.consensus.round
    # Flags are by each site's own view, and so is how many lines are ordinary; what the sites share does not differ.
    # As sites are told it: how many sites carry a direction only the aggregator knows.
    of_whole, of_parts = (method.verdict(replace(run.consensus, memory={})) for run in (whole, parts))
    assert of_whole is not None
    assert of_parts is not None
    assert of_whole.sentence.partition(";")[0] == of_parts.sentence.partition(";")[0]
    assert of_whole.notes == of_parts.notes
    plans = [_plan(run.consensus.broadcast, scaled) for run in (whole, parts)]
    assert (plans[0].calibration is None) == (plans[1].calibration is None)
    np.testing.assert_allclose(plans[0].null_scale, plans[1].null_scale, rtol=1e-5)
    if plans[0].calibration is not None and plans[1].calibration is not None:
        for shared in ("knots", "mean", "above", "below", "tails", "cut"):
            one, other = (getattr(plan.calibration, shared) for plan in plans)
            np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(whole.low_rank, parts.low_rank, atol=1e-7 * np.nanmax(np.abs(M)))


def _plan(broadcast: TensorMessage, scaled: bool) -> ClosingPlan:
    return ClosingPlan.of(split_broadcast(broadcast, ROWS)[0] if scaled else broadcast)
