"""Closing rounds of many columns, in which a sample takes part."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from dcfpca.rpca.column_blocks import ArrayColumns, split
from dcfpca.rpca.method import Consensus, FloatArray, Outcome, TensorMessage
from dcfpca.rpca.refinement import closing_plan
from dcfpca.rpca.refinement.closing import with_closing_rounds
from dcfpca.rpca.refinement.closing_plan import LARGEST_SAMPLE, ClosingPlan
from dcfpca.rpca.refinement.null import Null
from dcfpca.rpca.refinement.refine import Refinement
from dcfpca.rpca.simulate import simulate
from dcfpca.rpca.stage_list import Method
from dcfpca.rpca.subspace.fit import subspace_method
from dcfpca.rpca.subspace.solver import SubspaceSolver

ROWS, COLUMNS, RANK = 300, 600, 2


def _table(seed: int) -> tuple[FloatArray, NDArray[np.bool_]]:
    """Data with noise and gross errors, and where these are."""
    rng = np.random.default_rng(seed)
    M = rng.standard_normal((ROWS, RANK)) @ rng.standard_normal((RANK, COLUMNS))
    M += 0.2 * rng.standard_normal(M.shape)
    wrong = rng.random(M.shape) < 0.01
    return np.where(wrong, M + 10.0 * rng.choice([-1.0, 1.0], M.shape), M), wrong


def _method() -> Method:
    fit = subspace_method(SubspaceSolver(ROWS, 4, 100, 1e-9, fixed_rank=False))
    return with_closing_rounds(fit, fixed_rank=False)


@pytest.fixture
def _sampled(monkeypatch: pytest.MonkeyPatch) -> None:
    """A quarter of the columns take part."""
    monkeypatch.setattr(closing_plan, "MOST_COLUMNS", 0.25 * COLUMNS)
    monkeypatch.setattr(closing_plan, "MOST_ENTRIES", 1.0)
    monkeypatch.setattr(closing_plan, "PER_FEATURE", 0.4)  # of 300 features: 120 columns


@pytest.mark.usefixtures("_sampled")
def test_every_entry_is_judged_although_a_sample_makes_the_null_and_the_split_does_not_matter() -> None:
    M, wrong = _table(1)
    whole, parts = simulate(_method(), [ArrayColumns(M)]), simulate(_method(), split(M, (100, 350, 150)))
    plan, other = (ClosingPlan.of(run.consensus.broadcast) for run in (whole, parts))
    assert plan.calibration is not None
    assert other.calibration is not None
    counted = float(np.median(plan.calibration.entries))
    assert 0.15 * COLUMNS < counted < 0.35 * COLUMNS
    np.testing.assert_allclose(plan.calibration.entries, other.calibration.entries)
    np.testing.assert_allclose(plan.null_scale, other.null_scale, rtol=1e-5)
    np.testing.assert_allclose(whole.low_rank, parts.low_rank, atol=1e-7 * np.abs(M).max())
    flagged = whole.outliers.toarray() != 0.0
    assert np.count_nonzero(flagged & wrong) > 0.99 * np.count_nonzero(wrong)
    assert np.count_nonzero(flagged & ~wrong) < 0.2 * np.count_nonzero(wrong)


@pytest.mark.parametrize("columns", [1e3, 15_000.0, 19_999.0, 20_001.0, 1e6])
def test_no_sample_leaves_a_few_columns_out(columns: float) -> None:
    M, _ = _table(2)
    run = simulate(_method(), [ArrayColumns(M)])
    plan = replace(ClosingPlan.of(run.consensus.broadcast), columns=columns)
    for hiding in (False, True):
        asked = replace(plan, hiding=hiding)
        for share in (asked.sample_share, asked.refined_share, asked.judged_share):
            assert share <= LARGEST_SAMPLE or share >= 1.0


def test_a_site_adds_nothing_to_rounds_whose_sample_has_fewer_of_its_columns_than_may_leave_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A sum over two persons is about them alone, whatever cells are merged."""
    for name, most in (("MOST_COLUMNS", 100.0), ("MOST_ENTRIES", 1.0), ("PER_FEATURE", 0.01)):
        monkeypatch.setattr(closing_plan, name, most)
    few: dict[str, list[float]] = {"refine": [], "null": []}  # the largest number that a site of few columns sent

    def watch(kind: type[Refinement] | type[Null], counted: int) -> None:
        merged = kind.merged

        def watched(stage: Any, exact: TensorMessage, asked: Consensus, least: int) -> TensorMessage:
            sent = merged(stage, exact, asked, least)
            if np.rint(exact.scalars[counted] * ClosingPlan.of(asked.broadcast).columns) < least:
                few[asked.stage].append(float(max(np.abs(sent.tensor).max(), np.abs(sent.scalars[1:]).max())))
            return sent

        monkeypatch.setattr(kind, "merged", watched)

    watch(Refinement, 1)
    watch(Null, 0)
    rng = np.random.default_rng(1)
    M = rng.normal(size=(30, RANK)) @ rng.normal(size=(RANK, 2020)) + 0.2 * rng.normal(size=(30, 2020))
    fit = subspace_method(SubspaceSolver(30, 4, 100, 1e-9, fixed_rank=False))
    method = replace(with_closing_rounds(fit, fixed_rank=False, min_cell=5), min_cell=5)
    run = simulate(method, split(M, (1000, 1000, 20)))
    assert run.consensus.outcome is Outcome.CONVERGED
    assert few["refine"]
    assert few["null"]
    assert max(few["refine"] + few["null"]) == 0.0
