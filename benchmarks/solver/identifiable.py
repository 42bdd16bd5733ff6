"""Whether "Exact" is said of exact data where L is right, and only there: scattered outliers, and ones in blocks.

python -m benchmarks.solver identifiable

Outliers that fill some features of some samples are a low-rank matrix as well as a sparse one, so that L may be wrong.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

import numpy as np

from dcfpca.rpca.column_blocks import equal_counts, split
from dcfpca.rpca.method import FloatArray
from dcfpca.rpca.refinement.closing import with_closing_rounds
from dcfpca.rpca.simulate import simulate
from dcfpca.rpca.subspace.fit import subspace_method
from dcfpca.rpca.subspace.solver import SubspaceSolver
from dcfpca.rpca.synthetic import relative_error

SEEDS = range(2)
SIZES = ((100, 120, 3), (150, 150, 8), (20, 300, 2), (8, 300, 1))
SITES, ROUNDS, TOLERANCE = 4, 100, 1e-9
SHARES = (0.05, 0.15, 0.3)
BLOCKS = (0.05, 0.1, 0.2, 0.3, 0.4)  # of the features, and of the samples
LONG = ((1.0, 0.1), (1.0, 0.2), (0.1, 1.0), (0.2, 1.0), (0.15, 0.8), (0.8, 0.15))
SIZE_OF_OUTLIERS, SCATTERED = 10.0, 0.02
RIGHT = 1e-6


def identifiable() -> Iterator[dict[str, object]]:
    """One row a problem: the error of L, and what the verdict says of the split."""
    for seed, (rows, columns, rank) in product(SEEDS, SIZES):
        rng = np.random.default_rng([seed, rows])
        for name, S in _outliers(rows, columns, rng):
            L = rng.standard_normal((rows, rank)) @ rng.standard_normal((rank, columns))
            bound = min(2 * rank + 1, rows - 1)
            fit = subspace_method(SubspaceSolver(rows, bound, ROUNDS, TOLERANCE, fixed_rank=False))
            method = with_closing_rounds(fit, fixed_rank=False)
            run = simulate(method, split(L + S, equal_counts(columns, SITES)))
            verdict, error = method.verdict(run.consensus, ()), relative_error(run.low_rank, L)
            sentence = verdict.sentence if verdict else ""
            said = "exact" if sentence.startswith("Exact") else "other" if "other splits" in sentence else "not exact"
            yield {
                "outliers": name, "seed": seed, "size": f"{rows} × {columns}, rank {rank}", "said": said,
                "relative_error_L": error, "right": error <= RIGHT, "rounds": run.consensus.round,
            }  # fmt: skip


def _outliers(rows: int, columns: int, rng: np.random.Generator) -> Iterator[tuple[str, FloatArray]]:
    for share, low in product(SHARES, (-1.0, 0.0)):
        kind = "one-sided" if low == 0.0 else "scattered"
        yield f"{kind}, {share:g}", _scattered(rows, columns, share, rng, low)
    for features, samples in (*product(BLOCKS, BLOCKS), *LONG):
        if features * rows >= 1.0:
            block = _block(rows, columns, features, samples, rng)
            yield f"block of {features:g} × {samples:g}", block + _scattered(rows, columns, SCATTERED, rng)
    two = _block(rows, columns, 0.2, 0.3, rng) + _block(rows, columns, 0.3, 0.2, rng)
    yield "two blocks", two + _scattered(rows, columns, SCATTERED, rng)


def _scattered(rows: int, columns: int, share: float, rng: np.random.Generator, low: float = -1.0) -> FloatArray:
    sizes = SIZE_OF_OUTLIERS * rng.uniform(low, 1.0, (rows, columns))
    return np.where(rng.random(sizes.shape) < share, sizes, 0.0)


def _block(rows: int, columns: int, features: float, samples: float, rng: np.random.Generator) -> FloatArray:
    """Outliers a bᵀ: the same everywhere, or of any sizes, in neighbouring samples or others."""
    a, b, S = round(features * rows), max(1, round(samples * columns)), np.zeros((rows, columns))
    first = int(rng.integers(columns - b + 1))
    places = np.arange(first, first + b) if rng.random() < 0.5 else rng.choice(columns, b, replace=False)
    values = np.outer(rng.standard_normal(a), rng.standard_normal(b)) if rng.random() < 0.5 else np.ones((a, b))
    S[np.ix_(rng.choice(rows, a, replace=False), places)] = SIZE_OF_OUTLIERS * values
    return S
