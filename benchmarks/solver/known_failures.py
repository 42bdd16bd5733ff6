"""Small problems on which `subspace` was seen to fail, solved again by whole runs.

python -m benchmarks.solver known-failures
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from dcfpca.rpca.column_blocks import equal_counts
from dcfpca.rpca.method import FloatArray
from dcfpca.rpca.refinement.closing import with_closing_rounds
from dcfpca.rpca.refinement.closing_plan import ClosingPlan
from dcfpca.rpca.simulate import simulate
from dcfpca.rpca.subspace.fit import subspace_method
from dcfpca.rpca.subspace.solver import SubspaceSolver
from dcfpca.rpca.synthetic import Outliers, Problem, Recipe, generate, relative_error

SEEDS = range(6)
SITES = 2
TOLERANCE = 1e-9  # of a spec

# Few strong directions: the large entries of L are no outliers, though they lie far beyond the median.
FEW_STRONG = {
    "300 × 100, rank 3, strengths 1 to 1/20, s = .02": Recipe(
        300, 100, 3, 0.02, condition=20.0, counts=equal_counts(100, SITES)
    ),
    "150 × 300, rank 4, strengths 1 to 1/20, one-sided, s = .05": Recipe(
        150, 300, 4, 0.05, Outliers.ONE_SIDED, condition=20.0, counts=equal_counts(300, SITES)
    ),
    "100 × 600, rank 3, a factor a site, gaussian, s = .05": Recipe(
        100, 600, 3, 0.05, Outliers.GAUSSIAN, third=True, counts=equal_counts(600, 3)
    ),
}


def strong_level(seed: int) -> Problem:
    """19 rows, one direction ten times as strong as two others, 1 % noise, no outliers."""
    rng = np.random.default_rng(seed)
    L = (rng.standard_normal((19, 3)) * (10.0, 1.0, 1.0)) @ rng.standard_normal((3, 400))
    noise = 0.01 * float(np.sqrt(np.mean(L**2))) * rng.standard_normal(L.shape)
    return Problem(L + noise, L, np.zeros_like(L), 3, equal_counts(400, SITES))


def cases() -> Iterator[tuple[str, int, Problem, int, bool]]:
    """Name, seed, problem, the rank or bound that is told, and whether it is the rank."""
    for seed in SEEDS:
        square = generate(Recipe(50, 50, 3, 0.1, counts=equal_counts(50, SITES)), seed)
        yield from (("50 × 50, rank 3, s = .1", seed, square, width, width == 3) for width in (3, 6))
        wide = generate(Recipe(30, 60, 2, 0.1, counts=equal_counts(60, SITES)), seed)
        yield "30 × 60, rank 2, s = .1", seed, wide, 4, False
        for name, recipe in FEW_STRONG.items():
            few = generate(recipe, seed)
            yield from ((name, seed, few, times * few.rank, times == 1) for times in (1, 2))
        level = strong_level(seed)
        yield from (("19 × 400, a strong level", seed, level, width, width == 3) for width in (3, 6))


def truncated(M: FloatArray, rank: int) -> FloatArray:
    """The best approximation of this rank, which no estimate can much exceed where there are no outliers."""
    P, s, Q = np.linalg.svd(M, full_matrices=False)
    return np.asarray((P[:, :rank] * s[:rank]) @ Q[:rank])


def known_failures() -> Iterator[dict[str, object]]:
    """One row for each run: how it ends, and how far L is from the truth."""
    for name, seed, problem, width, fixed in cases():
        rows = problem.M.shape[0]
        inner = subspace_method(SubspaceSolver(rows, width, 150, TOLERANCE, fixed_rank=fixed))
        run = simulate(with_closing_rounds(inner, fixed_rank=fixed), problem.sites())
        plan = ClosingPlan.of(run.consensus.broadcast)
        allowed = 0.0 if problem.S.any() else relative_error(truncated(problem.M, problem.rank), problem.L)
        yield {
            "case": name, "seed": seed, "told": f"rank {width}" if fixed else f"bound {width}",
            "ending": plan.ending.name.lower(), "relative_error_L": relative_error(run.low_rank, problem.L),
            "allowed": allowed, "rank": plan.rank, "true_rank": problem.rank, "rounds": run.consensus.round,
            "wrong_flags": int(np.count_nonzero((run.outliers.toarray() != 0.0) != (problem.S != 0.0))),
        }  # fmt: skip
