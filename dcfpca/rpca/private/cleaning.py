"""The contribution of one column: its entries without gross errors, shortened to length one. Pure, column by column.

In units of a column's own (`whole_numbers`), with D the column in whole numbers, s its robust deviation, t the one of
E − L₁ but no less than s/2 and no more than s, and ψ the influence function of a threshold of 3t:

    E  = D, no farther from zero than 3s, zero where it is missing
    a₁ = UᵀE,   L₁ = U a₁
    Y₁ = L₁ + ψ(D − L₁)     where E is not D, or farther than 3t from L₁; Y₁ = E at all other entries
    a₂ = UᵀY₁,  L₂ = U a₂
    Y  = L₂ + ψ(D − L₂)     at the same entries; Y = E at all others

While there is no U yet, Y = ψ(D) under a threshold of 3s.

Whatever is done to a column depends on that column and on what was broadcast, never on another column: no scale, median
or warm start is shared. Coefficients and cleaned entries are rounded to whole numbers, all products of whole numbers
are exact, and everything else goes entry by entry, so that no bit of a column's result changes with the columns beside
it, nor with the loops that form it: `numpy_cleaning` and `compiled_cleaning` give the same bits. Sensitivity then
follows from the length alone. As |E| ≤ 3s and |ψ| ≤ 3t ≤ 3s entry by entry, a column of m rows
has |a₁| ≤ 3s√m, |a₂| ≤ |Y₁| ≤ 9s√m and |Y| ≤ 15s√m, which is what the bits of whole numbers rest on.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dcfpca.rpca.kernels.numba_compiler import compiler
from dcfpca.rpca.method import FloatArray
from dcfpca.rpca.private import numpy_cleaning
from dcfpca.rpca.private.column_scales import ColumnUnits, column_units
from dcfpca.rpca.private.numpy_cleaning import Cleaned, Cleaner
from dcfpca.rpca.private.schedule import LENGTH_BINS
from dcfpca.rpca.private.whole_numbers import WholeBasis


@dataclass(frozen=True, slots=True, eq=False)
class Contributions:
    """What a block's columns add to a sum: Y in whole numbers, each column in units of its own, and YᵀU."""

    cleaned: Cleaned
    units: ColumnUnits

    def weights(self, clip: float) -> FloatArray:
        """1/max(C, ‖y‖)² of each column, in its units: ỹ(ỹᵀU) is y(yᵀU) times this."""
        with np.errstate(all="ignore"):  # a clip far beyond a column overflows, and leaves nothing of it
            return 1.0 / np.maximum(np.maximum(self.cleaned.squares, (clip * self.units.factors) ** 2), 1.0)

    def total(self, clip: float) -> FloatArray:
        """Σ ỹ(ỹᵀU). Nothing but this sum rounds."""
        total: FloatArray = self.cleaned.Y @ (self.cleaned.projections * self.weights(clip)[:, None])
        return total

    def length_counts(self) -> FloatArray:
        """A histogram of the columns' lengths, half an octave to a bin: every column counts in exactly one."""
        squares = self.cleaned.squares
        _, powers = np.frexp(squares)  # 2^(powers − 1) ≤ squares: the exponent of a square counts half octaves
        octaves = powers - 1 + 2 * self.units.exponents
        places = np.where(squares > 0.0, np.clip(octaves + LENGTH_BINS // 2, 0, LENGTH_BINS - 1), 0)
        return np.bincount(places, minlength=LENGTH_BINS).astype(np.float64)


def contributions(
    M: FloatArray, basis: WholeBasis, cleaner: Cleaner, units: ColumnUnits | None = None
) -> Contributions:
    """Clean the columns of a block; `units` are theirs, where they are known already."""
    with np.errstate(all="ignore"):  # a column of extreme numbers may overflow; it is then left out
        units = units or column_units(M, basis.fixed)
        return Contributions(cleaner(M, units, basis), units)


def new_cleaner() -> Cleaner:
    """A compiled one where numba is installed, else the one in numpy; not to be shared between threads."""
    if compiler() is None:
        return numpy_cleaning.clean
    from dcfpca.rpca.private.compiled_cleaning import CompiledCleaner, compiled_loops  # noqa: PLC0415

    return CompiledCleaner(compiled_loops())


def load_cleaning_loops() -> None:
    """Clean a small block, so that the compiled loops are there; without numba it does next to nothing."""
    contributions(np.eye(4, 3), WholeBasis.of(np.eye(4, 2), 1), new_cleaner())


def bin_length(place: int) -> float:
    """The length in the middle of a bin."""
    return float(2.0 ** ((place + 0.5 - LENGTH_BINS // 2) / 2.0))
