"""Problems with a known truth, M = L₀ + S₀ + noise with L₀ of low rank and S₀ sparse, split over sites; and the errors
of a result against that truth."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

import numpy as np
from scipy import sparse

from dcfpca.errors import BadInput
from dcfpca.rpca.column_blocks import ArrayColumns, equal_counts, split
from dcfpca.rpca.method import FloatArray


class Outliers(StrEnum):
    """The kinds of gross error. √(mn) is the paper's scale: far above L₀, whose entries have a deviation of √r."""

    IMPULSE = "impulse"  # ±√(mn), as printed in the paper
    UNIFORM = "uniform"  # ±uniform(0, 1)·√(mn), as drawn by its authors' script
    GAUSSIAN = "gaussian"  # normal(0, 1)·√(mn)
    SMALL = "small"  # normal with the deviation of L₀ itself, so no entry gives itself away by its size
    ONE_SIDED = "one-sided"  # uniform(0, 1)·√(mn), never negative: pulls every mean one way
    BLOCK = "block"  # ±√(mn) filling one contiguous rectangle of s·m·n entries


@dataclass(frozen=True, slots=True)
class Recipe:
    """Parameters of a problem. `noise` is relative to the deviation of L₀; `counts` are the columns of each site.

    `condition` spreads the strengths of the factors geometrically over 1 … 1/condition. With `third`, the columns of
    a site load on only a third of the factors (a different third per site, all factors covered by three sites or more).
    """

    rows: int
    columns: int
    rank: int
    sparsity: float = 0.05
    outliers: Outliers = Outliers.IMPULSE
    noise: float = 0.0
    missing: float = 0.0
    condition: float = 1.0
    third: bool = False
    counts: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        if not 1 <= self.rank <= min(self.rows, self.columns):
            raise BadInput(
                f"Rank {self.rank} does not fit a {self.rows} × {self.columns} matrix.",
                f"Choose a rank from 1 to {min(self.rows, self.columns)}.",
            )
        if not (0 <= self.sparsity < 1 and 0 <= self.missing < 1):
            raise BadInput("The shares of outliers and of missing entries must be at least 0 and below 1.")
        if self.noise < 0 or self.condition < 1:
            raise BadInput("The noise must not be negative and the condition number at least 1.")
        if self.counts and sum(self.counts) != self.columns:
            raise BadInput(f"The sites' counts add up to {sum(self.counts)}, not to {self.columns} columns.")


@dataclass(frozen=True, slots=True, eq=False)
class Problem:
    """M with its truth. M is NaN where an entry is missing; L and S are complete."""

    M: FloatArray
    L: FloatArray
    S: FloatArray
    rank: int
    counts: tuple[int, ...]

    def sites(self) -> list[ArrayColumns]:
        """M split over its sites: each has its columns as an array of its own, as a daemon does."""
        return [ArrayColumns(np.ascontiguousarray(part.array)) for part in split(self.M, self.counts)]


def paper_problem(size: int, rank: int, sparsity: float, sites: int, seed: int | np.random.Generator) -> Problem:
    """The problem of the paper's experiments: square, ±√(mn) impulses, equal sites."""
    counts = equal_counts(size, sites)
    return generate(Recipe(rows=size, columns=size, rank=rank, sparsity=sparsity, counts=counts), seed)


def generate(recipe: Recipe, seed: int | np.random.Generator) -> Problem:
    """Draw a problem. The same recipe and seed give the same problem; the truth does not depend on noise or missing."""
    rng = np.random.default_rng(seed)
    counts = recipe.counts or (recipe.columns,)
    L = _low_rank(recipe, counts, rng)
    deviation = float(np.sqrt(np.mean(L * L)))
    S = _outliers(recipe, deviation, rng)
    M = L + S
    if recipe.noise:
        M += recipe.noise * deviation * rng.standard_normal(M.shape)
    if recipe.missing:
        M.ravel()[_places(M.size, recipe.missing, rng)] = np.nan
    return Problem(M, L, S, recipe.rank, counts)


def _low_rank(recipe: Recipe, counts: tuple[int, ...], rng: np.random.Generator) -> FloatArray:
    U = rng.standard_normal((recipe.rows, recipe.rank))
    V = rng.standard_normal((recipe.columns, recipe.rank))
    if recipe.third:
        V *= _seen_factors(recipe.rank, counts)
    strengths = np.geomspace(1.0, 1.0 / recipe.condition, recipe.rank)
    return np.asarray((U * strengths) @ V.T)


def _seen_factors(rank: int, counts: tuple[int, ...]) -> FloatArray:
    """The factors that each column loads on (1 or 0): a window of a third, shifted evenly from site to site."""
    window = -(-rank // 3)
    starts = [site * rank // len(counts) for site in range(len(counts))]
    seen = np.zeros((len(counts), rank))
    for site, start in enumerate(starts):
        seen[site, (start + np.arange(window)) % rank] = 1.0
    return np.repeat(seen, counts, axis=0)


def _outliers(recipe: Recipe, deviation: float, rng: np.random.Generator) -> FloatArray:
    rows, columns = recipe.rows, recipe.columns
    S = np.zeros((rows, columns))
    if recipe.outliers is Outliers.BLOCK:
        where = _rectangle(rows, columns, recipe.sparsity, rng)
    else:
        where = _places(rows * columns, recipe.sparsity, rng)
    S.ravel()[where] = _values(recipe.outliers, where.size, np.sqrt(rows * columns), deviation, rng)
    return S


def _values(kind: Outliers, count: int, scale: float, deviation: float, rng: np.random.Generator) -> FloatArray:
    match kind:
        case Outliers.IMPULSE | Outliers.BLOCK:
            return scale * rng.choice(np.array([-1.0, 1.0]), count)
        case Outliers.UNIFORM:
            return scale * rng.uniform(-1.0, 1.0, count)
        case Outliers.GAUSSIAN:
            return scale * rng.standard_normal(count)
        case Outliers.SMALL:
            return deviation * rng.standard_normal(count)
        case Outliers.ONE_SIDED:
            return scale * rng.uniform(0.0, 1.0, count)


def _places(size: int, share: float, rng: np.random.Generator) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    return rng.choice(size, round(share * size), replace=False, shuffle=False)


def _rectangle(
    rows: int, columns: int, share: float, rng: np.random.Generator
) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """Flat places of one rectangle of about this share of the matrix, as long as wide in proportion to it."""
    height, width = round(np.sqrt(share) * rows), round(np.sqrt(share) * columns)
    top = rng.integers(0, rows - height + 1)
    left = rng.integers(0, columns - width + 1)
    inside = np.arange(top, top + height)[:, None] * columns + np.arange(left, left + width)[None, :]
    return inside.ravel()


def paper_error(L: FloatArray, S: FloatArray | sparse.csc_array, L0: FloatArray, S0: FloatArray) -> float:
    """(‖L−L₀‖² + ‖S−S₀‖²)/(‖L₀‖² + ‖S₀‖²), the paper's err. S₀ dominates it: report `relative_error` of L beside it."""
    dense_S = S.toarray() if isinstance(S, sparse.csc_array) else S
    return (_squared(L - L0) + _squared(dense_S - S0)) / (_squared(L0) + _squared(S0))


def relative_error(L: FloatArray, L0: FloatArray) -> float:
    """‖L−L₀‖/‖L₀‖, Frobenius."""
    return float(np.sqrt(relative_squared_error(L, L0)))


def relative_squared_error(L: FloatArray, L0: FloatArray) -> float:
    """‖L−L₀‖²/‖L₀‖², Frobenius."""
    return _squared(L - L0) / _squared(L0)


def singular_value_error(found: FloatArray, truth: FloatArray, rank: int) -> float:
    """max|σ_i − σ_i(L₀)|/σ_r(L₀) over all i, the shorter list padded with zeros."""
    length = max(found.size, truth.size)
    difference = np.pad(found, (0, length - found.size)) - np.pad(truth, (0, length - truth.size))
    return float(np.abs(difference).max() / truth[rank - 1])


def _squared(matrix: FloatArray) -> float:
    flat = matrix.ravel()
    return float(flat @ flat)
