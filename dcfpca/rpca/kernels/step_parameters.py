"""The parameters of a local step, and the coefficients it fills in."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dcfpca.rpca.kernels.array_types import WorkArray
from dcfpca.rpca.method import FloatArray

AMENDED_WIDTH = 16  # below, a pass over all entries costs little, and looking at each of them again frees a few more
AMENDED_SHARE = 0.12  # up to this share of outliers, amending them costs less than a pass over all entries
THIN_WIDTH = 12  # up to so many directions, passes that never form L are faster than matrix products …
THIN_COLUMNS = 32  # … over blocks of at least so many columns; blocks of a tall matrix have few


@dataclass(frozen=True, slots=True, eq=False)
class StepPlan:
    """The parameters of a site's local passes; all of them come from the broadcast and the settings."""

    U: WorkArray  # m × p, orthonormal columns, in the precision of the round
    scales: FloatArray  # what each direction's coefficients are divided by in the update, the unit included
    threshold: float  # θ
    a: float  # a of firm thresholding
    relaxation: float  # ω of all passes but the last
    step: float  # ω of the last pass, which the update is made of
    noise: float  # the unit of the histogram
    passes: int
    sample: NDArray[np.intp]  # rows on which residuals are counted
    entering: EnteringDirections

    @property
    def amending(self) -> bool:
        """True if passes after the first only correct the outliers; decided by figures that all sites share, so that
        the split does not matter."""
        return amends_outliers(self.passes, self.width, self.relaxation)

    @property
    def thin(self) -> bool:
        """True if the directions are few enough (THIN_WIDTH) for passes that do not form L."""
        return 0 < self.width <= THIN_WIDTH

    def uses_thin_passes(self, M: FloatArray) -> bool:
        """True if the plan is `thin` and this block has enough columns (THIN_COLUMNS) for such passes."""
        return self.thin and M.shape[1] >= THIN_COLUMNS

    @property
    def width(self) -> int:
        """p."""
        return int(self.U.shape[1])


@dataclass(frozen=True, slots=True, eq=False)
class EnteringDirections:
    """The directions with d > 0. Only they make L, so only they are worked on until the last pass of a round."""

    places: NDArray[np.intp]
    U: WorkArray
    weights: WorkArray

    @staticmethod
    def of(U: WorkArray, weights: FloatArray) -> EnteringDirections:
        """Select them; no copy where all enter."""
        places = np.flatnonzero(weights)
        return EnteringDirections(places, select_columns(U, places), weights[places].astype(U.dtype))


@dataclass(frozen=True, slots=True, eq=False)
class Coefficients:
    """A site's coefficients (n_i × p) after its passes, or a block's: those of Y, and of the L that Y was made from."""

    V: FloatArray
    L: FloatArray

    @staticmethod
    def empty(columns: int, width: int) -> Coefficients:
        """Uninitialized V, and zeros for L."""
        return Coefficients(np.empty((columns, width)), np.zeros((columns, width)))

    def block(self, first: int, last: int) -> Coefficients:
        """These columns' part, as views."""
        return Coefficients(self.V[first:last], self.L[first:last])


def amends_outliers(passes: int, width: int, relaxation: float) -> bool:
    """True if later passes of such a round correct only the outliers; 1 − 1/ω is the share of outliers."""
    return passes > 1 and width >= AMENDED_WIDTH and 1.0 - 1.0 / relaxation <= AMENDED_SHARE


def select_columns(U: WorkArray, places: NDArray[np.intp]) -> WorkArray:
    """These columns, contiguous row by row as the loops need them; no copy where it is all of them."""
    return U if places.size == U.shape[1] else np.take(U, places, axis=1)
