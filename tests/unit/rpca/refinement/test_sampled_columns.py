"""While entries are hidden, a sample of the columns takes part where they are very many: it decides hardly anything."""

from __future__ import annotations

import numpy as np
import pytest

from dcfpca.rpca.column_blocks import split
from dcfpca.rpca.method import Consensus, FloatArray, TensorMessage, Total
from dcfpca.rpca.refinement import closing_plan
from dcfpca.rpca.refinement.closing import with_closing_rounds
from dcfpca.rpca.refinement.closing_plan import REFINE, VALIDATE, ClosingPlan
from dcfpca.rpca.simulate import Simulation, exchange, simulate
from dcfpca.rpca.stage_list import Method
from dcfpca.rpca.subspace.fit import subspace_method
from dcfpca.rpca.subspace.solver import SubspaceSolver

ROWS, COLUMNS, RANK, SAMPLED = 140, 900, 3, 300


@pytest.fixture
def table() -> FloatArray:
    """Noise and a few gross errors about three directions; more features than have a whole covariance."""
    rng = np.random.default_rng(0)
    M = rng.standard_normal((ROWS, RANK)) @ rng.standard_normal((RANK, COLUMNS))
    M += 0.3 * rng.standard_normal(M.shape)
    M[rng.random(M.shape) < 0.01] += 20.0
    return M


@pytest.fixture
def sampling(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(closing_plan, "MOST_COLUMNS", float(SAMPLED))
    monkeypatch.setattr(closing_plan, "MOST_ENTRIES", 1.0)


def method() -> Method:
    return with_closing_rounds(subspace_method(SubspaceSolver(ROWS, 6, 100, 1e-9, fixed_rank=False)), fixed_rank=False)


def distance(one: Simulation, other: Simulation) -> float:
    L = [np.concatenate([result.L for result in run.results], axis=1) for run in (one, other)]
    return float(np.linalg.norm(L[0] - L[1]) / np.linalg.norm(L[1]))


def test_the_answer_is_that_of_all_columns_as_far_as_the_last_rounds_leave_them_at_rest(
    table: FloatArray, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = simulate(method(), split(table, (COLUMNS,)))
    monkeypatch.setattr(closing_plan, "MOST_COLUMNS", float(SAMPLED))
    monkeypatch.setattr(closing_plan, "MOST_ENTRIES", 1.0)
    sampled = simulate(method(), split(table, (COLUMNS,)))
    assert [ClosingPlan.of(run.consensus.broadcast).rank for run in (sampled, whole)] == [RANK, RANK]
    assert distance(sampled, whole) < 0.003  # of L; the noise is 0.17 of it
    flags = [run.outliers.toarray() != 0.0 for run in (sampled, whole)]
    assert np.count_nonzero(flags[0] != flags[1]) <= 0.02 * np.count_nonzero(flags[1])


@pytest.mark.usefixtures("sampling")
def test_the_answer_does_not_depend_on_the_split(table: FloatArray) -> None:
    one, four = (simulate(method(), split(table, counts)) for counts in ((COLUMNS,), (500, 250, 100, 50)))
    assert distance(one, four) < 1e-9
    assert one.outliers.nnz > 1000
    np.testing.assert_array_equal(one.outliers.toarray() != 0.0, four.outliers.toarray() != 0.0)


@pytest.mark.usefixtures("sampling")
def test_sums_are_of_a_sample_while_entries_are_hidden_and_then_of_all(table: FloatArray) -> None:
    shares = dict[tuple[str, bool], float]()

    for consensus, total in rounds(method(), table):
        if consensus.stage == REFINE:
            shares[REFINE, ClosingPlan.of(consensus.broadcast).hiding] = float(total.sums.scalars[1])
            assert total.sums.scalars[0] == 1.0
            assert method().conserved(consensus, total) == ""
    assert shares[REFINE, False] == 1.0
    assert abs(shares[REFINE, True] * COLUMNS - SAMPLED) < 6 * SAMPLED**0.5


@pytest.mark.usefixtures("sampling")
@pytest.mark.parametrize(("hiding", "count"), [(True, 1.1), (False, 0.9)])
def test_more_columns_than_there_are_or_fewer_than_take_part_break_a_law(
    table: FloatArray, hiding: bool, count: float
) -> None:
    for consensus, total in rounds(method(), table):
        if consensus.stage == REFINE and ClosingPlan.of(consensus.broadcast).hiding is hiding:
            scalars = total.sums.scalars.copy()
            scalars[1] = count
            lie = Total(TensorMessage(total.sums.tensor, scalars), total.contributors)
            assert "columns that take part" in method().conserved(consensus, lie)
            return
    pytest.fail("the run had no such round")


def rounds(run: Method, table: FloatArray) -> list[tuple[Consensus, Total]]:
    """Every round of two sites, and its sum."""
    sites, consensus, seen = [run.site(own) for own in split(table, (600, 300))], run.begin(), []
    while consensus.outcome is None:
        total = exchange(run, consensus, sites)
        seen.append((consensus, total))
        consensus = run.advance(consensus, total)
    assert VALIDATE in [asked.stage for asked, _ in seen]
    return seen
