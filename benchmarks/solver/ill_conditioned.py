"""Exact problems whose singular values spread over orders of magnitude, by whole runs with the rank unknown.

python -m benchmarks.solver ill-conditioned

The seeds were fixed before anything was tuned on them; development had its own (tests, seeds below 100).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product

from dcfpca.rpca.column_blocks import equal_counts
from dcfpca.rpca.refinement.closing import with_closing_rounds
from dcfpca.rpca.refinement.closing_plan import ClosingPlan
from dcfpca.rpca.simulate import simulate
from dcfpca.rpca.subspace.fit import subspace_method
from dcfpca.rpca.subspace.solver import SubspaceSolver
from dcfpca.rpca.synthetic import Outliers, Recipe, generate, relative_error

SEEDS = range(1000, 1016)
CONDITIONS = (1e2, 1e3, 1e4, 1e6)
KINDS = (Outliers.IMPULSE, Outliers.UNIFORM, Outliers.SMALL)
SHARES = (0.05, 0.15)
TIMES = (1, 2)  # the rank that is told, or the bound, over the true one
SIZE, RANK, SITES, ROUNDS, TOLERANCE = 200, 5, 5, 100, 1e-9


def ill_conditioned(seeds: Sequence[int] = SEEDS) -> Iterator[dict[str, object]]:
    """One row a problem: 200 × 200 of rank 5, told the rank or the bound 10."""
    for seed, condition, kind, share, times in product(seeds, CONDITIONS, KINDS, SHARES, TIMES):
        recipe = Recipe(SIZE, SIZE, RANK, share, kind, condition=condition, counts=equal_counts(SIZE, SITES))
        problem, fixed = generate(recipe, seed), times == 1
        fit = subspace_method(SubspaceSolver(SIZE, times * RANK, ROUNDS, TOLERANCE, fixed_rank=fixed))
        run = simulate(with_closing_rounds(fit, fixed_rank=fixed), problem.sites())
        plan = ClosingPlan.of(run.consensus.broadcast)
        yield {
            "seed": seed, "condition": condition, "kind": kind.value, "s": share, "bound": times * RANK,
            "ending": plan.ending.name.lower(), "rank": plan.rank, "rounds": run.consensus.round,
            "relative_error_L": relative_error(run.low_rank, problem.L),
        }  # fmt: skip
