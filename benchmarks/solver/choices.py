"""What single choices in `subspace` are worth: rounds with each, and with what was chosen against.

python -m benchmarks.solver choices
"""

from __future__ import annotations

from collections.abc import Iterator

from benchmarks.solver.timed_solve import solve
from dcfpca.rpca.column_blocks import equal_counts
from dcfpca.rpca.subspace.fit import subspace_method
from dcfpca.rpca.subspace.settings import SubspaceSettings
from dcfpca.rpca.subspace.solver import SubspaceSolver
from dcfpca.rpca.synthetic import Outliers, Recipe, generate

SIZE = 300
COUNTS = equal_counts(SIZE, 10)
CASES = (  # name, recipe, bound over rank
    ("r = .1 n, s = .2, rank given", Recipe(SIZE, SIZE, 30, 0.2, counts=COUNTS), 1),
    ("r = .2 n, s = .2, bound 2r", Recipe(SIZE, SIZE, 60, 0.2, counts=COUNTS), 2),
    ("r = .2 n, s = .3, bound 2r", Recipe(SIZE, SIZE, 60, 0.3, counts=COUNTS), 2),
    ("20 % missing, s = .15, bound 2r", Recipe(SIZE, SIZE, 15, 0.15, missing=0.2, counts=COUNTS), 2),
    ("outliers as small as L, bound 2r", Recipe(SIZE, SIZE, 15, 0.05, Outliers.SMALL, counts=COUNTS), 2),
    ("a third of the factors, s = .15, bound 2r", Recipe(SIZE, SIZE, 15, 0.15, third=True, counts=COUNTS), 2),
)
CHOICES = (
    ("as it is", SubspaceSettings()),
    ("no momentum", SubspaceSettings(momentum_below=0.0)),
    ("one pass a round", SubspaceSettings(passes=1)),
    ("four passes a round", SubspaceSettings(passes=4)),
    ("no narrow rounds", SubspaceSettings(narrow_rounds=0)),
    ("double precision throughout", SubspaceSettings(single=1.0)),
    ("noise does not bar directions", SubspaceSettings(rank_noise=0.0)),
    ("threshold falls to a fifth", SubspaceSettings(fall_fastest=0.2)),
)


def choices() -> Iterator[dict[str, object]]:
    """One row for each case and choice."""
    for name, recipe, factor in CASES:
        problem = generate(recipe, 0)
        for choice, settings in CHOICES:
            width = recipe.rank * factor
            method = subspace_method(SubspaceSolver(SIZE, width, 150, 1e-11, fixed_rank=factor == 1, settings=settings))
            solved = solve(method, problem)
            yield {
                "case": name, "choice": choice, "rounds_to": solved.rounds_to, "rounds": solved.rounds,
                "relative_error_L": solved.relative_error_L, "rank": solved.rank, "true_rank": recipe.rank,
            }  # fmt: skip
