"""The vocabulary of the stages' checks: how far two consensuses are apart, and laws that every true sum keeps.

*Differences* are in units of rounding. Both sides carry out one step on the same numbers, so that only the rounding of
their machines differs. Each figure is compared relative to its own size: relative to the largest one, any value of a
weak direction or of a feature in a small unit would pass as verified. Singular vectors are determined only up to sign
and, where strengths nearly coincide, up to a rotation; that much is allowed, and no more.

*Laws* allow for the rounding of updates to fixed point, whose bound comes with a sum (`Total.rounding`), and for the
last digits of sums in floating point. So honest runs keep them with any data, any number of bits and any exponents.
With few bits left the laws say little, as do the sums.
"""

from __future__ import annotations

import numpy as np

from dcfpca.rpca.method import FloatArray

TOLERANCE = 1e-6
"""Relative to a figure's size: above what a step on the same numbers rounds, and below what would steer anything."""
ORTHONORMAL = 1e-8
"""The largest entry of UᵀU − I over the directions that enter L."""
ROUNDING = 16.0 * np.finfo(np.float64).eps
"""Of the strongest direction, for every row that a product runs over: decompositions are as exact as this."""
VANISHING = 1e-100
"""Of the strongest direction: one that is weaker says nothing."""
APART = float("inf")
SAME_COUNT = {64: 1e-6, 32: 1e-2}
"""Relative difference of the number of columns from round to round: a sum of shares in fixed point is so precise."""
JUMP = 1e3
"""Scales, thresholds and factors grow by no more than this, times √rows, from one round to the next."""


def is_orthonormal(U: FloatArray) -> bool:
    """Whether the columns of U, finite numbers, are orthonormal to ORTHONORMAL."""
    return not np.abs(U.T @ U - np.eye(U.shape[1])).max(initial=0.0) > ORTHONORMAL


def same_gaps(one: FloatArray, other: FloatArray) -> bool:
    """Whether the entries that are no finite numbers are the same ones in both."""
    gaps = ~(np.isfinite(one) & np.isfinite(other))
    return np.array_equal(one[gaps], other[gaps], equal_nan=True)


def worst(*apart: float) -> float:
    """The largest; infinite if one is NaN, as of numbers whose squares overflow. Python's `max` would leave it out."""
    largest = float(np.max(apart, initial=0.0))
    return APART if np.isnan(largest) else largest


def of_figures(
    expected: FloatArray | float, announced: FloatArray | float, sizes: FloatArray | float | None = None
) -> float:
    """The largest difference in units of TOLERANCE times the figure's size: its own, or the given one."""
    one, other = np.atleast_1d(expected), np.atleast_1d(announced)
    known = np.isfinite(one)  # all other figures are the same
    apart = np.abs(one - other)[known]
    allowed = TOLERANCE * np.broadcast_to(np.abs(one) if sizes is None else sizes, one.shape)[known]
    return worst(*np.divide(apart, allowed, out=np.where(apart > 0.0, APART, 0.0), where=allowed > 0.0))


def relative_rounding(strengths: FloatArray, rows: int) -> FloatArray:
    """How far off each direction's strength and vector may be, relatively: TOLERANCE, and what the strongest direction
    rounds off the weak ones."""
    return TOLERANCE + ROUNDING * rows / np.maximum(_shares(strengths), VANISHING)


def _shares(strengths: FloatArray) -> FloatArray:
    """Strengths of the strongest."""
    return np.asarray(strengths / max(float(strengths.max(initial=0.0)), np.finfo(np.float64).tiny))


def of_strengths(expected: FloatArray, announced: FloatArray, strengths: FloatArray, rows: int) -> float:
    """The largest difference of figures by direction, each in units of what rounding explains of it."""
    return of_figures(expected, announced, np.abs(expected) * relative_rounding(strengths, rows) / TOLERANCE)


def of_directions(expected: FloatArray, announced: FloatArray, strengths: FloatArray) -> float:
    """The same of unit vectors (columns), which are determined up to sign, and up to turns among directions whose
    strengths are nearly the same: by ε s_1/|s_i − s_j|, as of the eigenvectors of any matrix."""
    rows, width = expected.shape
    if width == 0:
        return 0.0
    allowed = relative_rounding(strengths, rows)
    along = np.einsum("kj,kj->j", expected, announced)
    signs = np.where(along < 0.0, -1.0, 1.0)
    plain = np.linalg.norm(announced - signs * expected, axis=0)
    if (plain <= allowed).all():
        return worst(*(plain / allowed))
    shares = _shares(strengths)
    gaps = np.maximum(np.abs(shares[:, None] - shares[None, :]), VANISHING)
    turns = np.minimum(TOLERANCE + ROUNDING * rows / gaps, 1.0)
    explained = np.clip(expected.T @ announced, -turns, turns)
    explained[np.diag_indices(width)] = along
    left = np.linalg.norm(announced - expected @ explained, axis=0)
    lengths = np.abs(np.linalg.norm(announced, axis=0) - np.linalg.norm(expected, axis=0))
    # Resting directions are not orthogonal to the others, but they are the same in both.
    return worst(*(np.minimum(plain, np.maximum(left, lengths)) / allowed))


SLACK = 1e-6
"""Relative: sites add up millions of numbers in double precision, and some of their factors in single precision."""


def broken_count(counts: FloatArray, rounding: float, most: FloatArray | float = np.inf, what: str = "a count") -> str:
    """Counts are whole, not negative, and not above `most`."""
    if not np.isfinite(counts).all():
        return f"{what} is not a number"
    slack = rounding + SLACK * np.maximum(np.abs(counts), 1.0)
    if (counts < -slack).any():
        return f"{what} is negative"
    if (counts > most + slack).any():
        return f"{what} is larger than it can be"
    return f"{what} is not a whole number" if (np.abs(counts - np.rint(counts)) > slack).any() else ""


def unequal(one: FloatArray | float, other: FloatArray | float, rounding: float) -> bool:
    """Whether figures that every true sum has equal are not."""
    size = np.maximum(np.maximum(np.abs(one), np.abs(other)), 1.0)
    return not bool(np.all(np.abs(np.asarray(one) - other) <= rounding + SLACK * size))


def exceeds(one: FloatArray | float, most: FloatArray | float, rounding: FloatArray | float) -> bool:
    """Whether a figure is above what it can be in any true sum."""
    return not bool(np.all(np.asarray(one) <= most + rounding + SLACK * np.maximum(np.abs(most), 1.0)))


def indefinite(gram: FloatArray, rounding: float) -> bool:
    """Whether a matrix that is a sum of squares has a direction in which it is negative."""
    if not gram.size:
        return False
    if not np.isfinite(gram).all():
        return True
    size = float(np.abs(np.diag(gram)).max())
    least = float(np.linalg.eigvalsh(0.5 * (gram + gram.T))[0])
    return bool(least < -(gram.shape[0] * rounding + SLACK * size))


def implausible_columns(announced: float, before: float | None, precision: int) -> str:
    """Why sites cannot have this number of columns, by itself or after that of the round before."""
    apart = SAME_COUNT[precision]
    if announced < 1.0 - apart:
        return "the announced number of columns is below one"
    if before is not None and abs(announced - before) > apart * before:
        return "the number of columns is not that of the round before"
    return ""
