"""Derives a subspace, its strengths, its rank and its error from the noisy sums of several rounds together.

The sums G_t = C U_t + noise, divided by the deviation of their noise, stand side by side in one m × P matrix W with
independent noise of deviation one. Its leading left singular vectors are those of C as all rounds together tell them.
(Solving C [U_1 … U_T] ≈ [G_1 … G_T] first is no better with two rounds and fails with more: U_2, U_3, … are nearly the
same, and the inverse amplifies the noise of their differences.) This is post-processing and spends no privacy budget.

The deviation of the noise is public, and so are the noisy sums and the noisy count. From them `PooledSums.sines`
computes how far noise and chance turn a direction of a given strength, also one with little gap to the directions that
are not kept. `COVERAGE` turns this into a bound that holds for more than nine directions of ten in random problems with
strengths spread over a factor of five (`tests/unit/rpca/private/test_errors.py`). The bound does not cover what
cleaning changes.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from dcfpca.rpca.method import FloatArray

ABOVE_EDGE = 1.05
"""Noise alone stays below √m + √P, but for fluctuations of a few per cent."""
COVERAGE = 2.0
UNCERTAIN = 0.1
"""Above this a direction is called uncertain."""


@dataclass(frozen=True, slots=True, eq=False)
class PooledSums:
    """U_t and G_t of the rounds so far side by side, and the deviation of every column's noise."""

    bases: FloatArray
    sums: FloatArray
    deviations: FloatArray

    @staticmethod
    def nothing(rows: int) -> PooledSums:
        """Before the first round."""
        return PooledSums(np.zeros((rows, 0)), np.zeros((rows, 0)), np.zeros(0))

    @staticmethod
    def of(memory: Mapping[str, FloatArray]) -> PooledSums:
        """Inverse of `memory`."""
        return PooledSums(memory["bases"], memory["sums"], memory["deviations"])

    def memory(self, taken: int) -> dict[str, FloatArray]:
        """As the aggregator keeps it, after this many tensors were summed."""
        kept = {"bases": self.bases, "sums": self.sums, "deviations": self.deviations}
        return {**kept, "taken": np.array([float(taken)])}

    def with_round(self, U: FloatArray, G: FloatArray, deviation: float) -> PooledSums:
        """One more round."""
        return PooledSums(
            np.concatenate([self.bases, U], axis=1),
            np.concatenate([self.sums, G], axis=1),
            np.concatenate([self.deviations, np.full(U.shape[1], deviation)]),
        )

    def subspace(self, width: int) -> tuple[FloatArray, FloatArray]:
        """The leading `width` directions, orthonormal and of settled sign, and all singular values of W."""
        U, values, _ = np.linalg.svd(self.sums / self.deviations, full_matrices=False)
        leading = U[:, :width]
        heaviest = leading[np.abs(leading).argmax(axis=0), np.arange(leading.shape[1])]
        return np.ascontiguousarray(leading * np.where(heaviest < 0.0, -1.0, 1.0)), values

    def above_noise(self, values: FloatArray) -> int:
        """How many singular values of W noise alone does not explain."""
        rows, pooled = self.sums.shape
        return int(np.count_nonzero(values > ABOVE_EDGE * (np.sqrt(rows) + np.sqrt(pooled))))

    def strengths(self, U: FloatArray) -> FloatArray:
        """Diagonal of Uᵀ C U by least squares over all rounds, never negative."""
        seen, measured = U.T @ (self.bases / self.deviations), U.T @ (self.sums / self.deviations)
        inner, *_ = np.linalg.lstsq(seen.T, measured.T, rcond=None)
        strengths: FloatArray = np.maximum(np.diag(inner), 0.0)
        return strengths

    def sines(self, values: FloatArray, rank: int, columns: float) -> FloatArray:
        """The sine of the angle between each of the first `rank` directions and the space that they estimate, as far as
        noise, and the random choice of this many columns, turned it. `values` are all those of W.

        For a spike s in m × P noise of deviation one: the value seen is x² = (s² + m)(s² + P)/s², and
        cos² = (s⁴ − mP)/(s²(s² + m)) (Benaych-Georges and Nadakuditi, 2012). Noise also mixes direction i with a
        direction j that is not kept, by a component of variance (s_i² + s_j²)/(s_i² − s_j²)², and n columns drawn by
        chance mix them by one of s_i s_j/(n (s_i − s_j)²): the smaller the gap, the more.
        """
        rows, pooled = self.sums.shape
        excess = values**2 - rows - pooled
        discriminant = np.maximum(excess**2 - 4.0 * rows * pooled, 0.0)
        spikes = np.where(excess > 2.0 * np.sqrt(rows * pooled), (excess + np.sqrt(discriminant)) / 2.0, 0.0)
        kept, others = np.sqrt(spikes[:rank, None]), np.sqrt(spikes[None, rank:])
        sampled = kept * others * (kept + others) ** 2 / max(columns, 1.0)
        gaps = np.maximum((kept**2 - others**2) ** 2, np.finfo(float).tiny)
        mixed = np.where(others > 0.0, (kept**2 + others**2 + sampled) / gaps, 0.0).sum(axis=1)
        sines: FloatArray = np.sqrt(np.minimum(sines_of_spikes(spikes[:rank], rows, pooled) ** 2 + mixed, 1.0))
        return sines


def sines_of_spikes(squared: FloatArray, rows: int, pooled: int) -> FloatArray:
    """Sines for spikes of these squares; one for those that noise hides."""
    visible = squared**2 > rows * pooled
    safe = np.where(visible, squared, 1.0)
    cosines = np.where(visible, (safe**2 - rows * pooled) / (safe * (safe + rows)), 0.0)
    return np.sqrt(np.clip(1.0 - cosines, 0.0, 1.0))


def stated_errors(sines: FloatArray) -> FloatArray:
    """Bounds on the sines between directions and the space they estimate."""
    return np.minimum(COVERAGE * sines, 1.0)


def direction_notes(errors: FloatArray) -> tuple[str, ...]:
    """One sentence about every direction and what its bound rests on."""
    if not errors.size:
        return ()
    said = [
        f"direction {index} is uncertain: sin θ up to about {_rounded_up(error):.2g}"
        if error > UNCERTAIN
        else f"direction {index} is within sin θ = {_rounded_up(error):.2g}"
        for index, error in enumerate(errors, start=1)
    ]
    return (
        f"How far noise and chance turned them: {'; '.join(said)}. Such bounds hold for nine directions of ten. They"
        " follow from the level of the noise and the noisy singular values, which are public, and cost no privacy.",
    )


def _rounded_up(error: float) -> float:
    """Two digits that are no smaller."""
    if error <= 0.0:
        return 0.0
    unit = 10.0 ** (math.floor(math.log10(error)) - 1)
    return math.ceil(error / unit - 1e-9) * unit
