"""A participant's side of `subspace`. Its state is the last subspace it answered and its own coefficients in it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from dcfpca.rpca.columns import blocks
from dcfpca.rpca.exchange import Columns, FloatArray, Parcel, ResultBlock
from dcfpca.rpca.kernels import StepPlan, StepSums, block_step, exponent_histogram, observed_gaps, residual
from dcfpca.rpca.subspace_settings import OPENING_BINS, OPENING_LOWEST, OPENING_STEP, PLAN, SubspaceSettings
from dcfpca.rpca.thresholds import firm

FINISHING_PASSES = 8  # the final U is exact to the tolerance; these make V as exact
SMALLEST_SCALE = 1e-11  # of the largest: below lies rounding, which must not be blown up


class SubspaceSite:
    """Holds U as last answered and V; a site that missed rounds goes on from where it was."""

    def __init__(self, columns: Columns, rows: int, width: int, seed: int, settings: SubspaceSettings) -> None:
        self._columns = columns
        self._settings = settings
        self._U = np.zeros((rows, width))
        self._V = np.zeros((columns.shape[1], width))
        self._sample = sampled_rows(rows, seed, settings)
        self._certificate: dict[str, float] = {}

    def answer(self, round: int, broadcast: Parcel) -> Parcel:
        """Round 0: counts of entry sizes. Later: the local passes, then Z = Y V̂ and counts of residual sizes."""
        if round == 0:
            return self._opening()
        # In round 1 U is random: one pass from L = 0 leaves the rows that nobody observed at exactly zero for good.
        plan = self._plan(broadcast, passes=1 if round == 1 else self._settings.passes)
        self._V = self._turned(plan.U)
        self._U = plan.U
        sums = StepSums.zeros(*plan.U.shape)
        for start, stop in blocks(self._columns, self._settings.block_bytes):
            block_step(self._columns.read(start, stop), self._V[start:stop], plan, sums)
        return self._update(plan, sums, broadcast)

    def snapshot(self) -> dict[str, NDArray[np.generic]]:
        """U as last answered, and V."""
        return {"U": self._U.copy(), "V": self._V.copy()}

    def restore(self, snapshot: Mapping[str, NDArray[np.generic]]) -> None:
        """Take up an earlier snapshot."""
        self._U = np.array(snapshot["U"], dtype=np.float64)
        self._V = np.array(snapshot["V"], dtype=np.float64)

    def finish(self, broadcast: Parcel) -> Iterator[ResultBlock]:
        """L = U D Vᵀ with V settled under the final U, and S = firm(M − L). Leaves the state as it was."""
        plan = self._plan(broadcast, passes=FINISHING_PASSES)
        V = self._turned(plan.U)
        tally = Tally()
        for start, stop in blocks(self._columns, self._settings.block_bytes):
            M = self._columns.read(start, stop)
            block_step(M, V[start:stop], plan, StepSums.zeros(*plan.U.shape))
            yield _result(start, M, V[start:stop], plan, tally)
        self._certificate = tally.figures()

    def certificate(self) -> dict[str, float]:
        """Figures of the last `finish` that was read to its end."""
        return dict(self._certificate)

    def _opening(self) -> Parcel:
        sizes = np.zeros(OPENING_BINS)
        for start, stop in blocks(self._columns, self._settings.block_bytes):
            entries = np.abs(self._columns.read(start, stop))
            sizes += exponent_histogram(entries, 1.0, OPENING_LOWEST, OPENING_BINS, OPENING_STEP)
        return Parcel(np.zeros((0, 0)), np.concatenate([[float(self._columns.shape[1])], sizes]))

    def _plan(self, broadcast: Parcel, passes: int) -> StepPlan:
        threshold, noise, relaxation, _ = broadcast.scalars[: len(PLAN)]
        weights, values = np.split(broadcast.scalars[len(PLAN) :], 2)
        return StepPlan(
            U=broadcast.tensor,
            weights=weights,
            scales=update_scales(values),
            threshold=float(threshold),
            a=self._settings.a,
            relaxation=float(relaxation),
            noise=float(noise),
            passes=passes,
            sample=self._sample,
        )

    def _turned(self, U: FloatArray) -> FloatArray:
        """V carried over from the last subspace this site answered into this one."""
        return self._V @ (self._U.T @ U)

    def _update(self, plan: StepPlan, sums: StepSums, broadcast: Parcel) -> Parcel:
        """Everything is sent in units that make it of order one, so that a fixed-point sum keeps all its digits."""
        values = broadcast.scalars[len(PLAN) + plan.weights.size :]
        everyone = broadcast.scalars[3]
        counts = np.concatenate([[sums.pull, sums.kept, sums.sampled], sums.histogram]) / (everyone * self._sample.size)
        share = self._columns.shape[1] / everyone
        return Parcel(sums.update(plan.U) / update_unit(values), np.concatenate([[share], counts]))


@dataclass(slots=True)
class Tally:
    """Sums over a site's blocks for its certificate."""

    entries: int = 0
    outliers: int = 0
    missing: int = 0
    pull: float = 0.0
    drift: float = 0.0
    size: float = 0.0

    def figures(self) -> dict[str, float]:
        """Shares of outliers and missing entries, RMS of what is left, and how far V is from a fixed point."""
        observed = max(self.entries - self.missing, 1)
        return {
            "outlier_share": self.outliers / observed,
            "missing_share": self.missing / max(self.entries, 1),
            "residual_rms": float(np.sqrt(self.pull / observed)),
            "stationarity": float(np.sqrt(self.drift / self.size)) if self.size > 0.0 else 0.0,
        }


def update_unit(values: FloatArray) -> float:
    """The unit of the tensor a site sends: about the largest singular value."""
    largest = float(values.max())
    return largest if largest > 0.0 else 1.0


def update_scales(values: FloatArray) -> FloatArray:
    """What V is divided by so that its columns have length one together, over all sites."""
    return np.maximum(values, SMALLEST_SCALE * update_unit(values))


def sampled_rows(rows: int, seed: int, settings: SubspaceSettings) -> NDArray[np.intp]:
    """The rows on which every site counts residuals: the same for all, so that the split does not matter."""
    count = min(rows, max(settings.sampled_rows, round(settings.sampled_share * rows)))
    return np.sort(np.random.default_rng(seed).choice(rows, count, replace=False))


def _result(start: int, M: FloatArray, V: FloatArray, plan: StepPlan, tally: Tally) -> ResultBlock:
    shrunk = V * plan.weights
    missing = observed_gaps(M)
    R = np.empty(M.shape)
    residual(M, missing, plan.U, shrunk, R)
    S = firm(R, plan.threshold, plan.a)
    left = R - S
    tally.entries += M.size
    tally.outliers += int(np.count_nonzero(S))
    tally.missing += 0 if missing is None else int(np.count_nonzero(missing))
    tally.pull += float(np.sum(left**2))
    tally.drift += float(np.sum((shrunk + left.T @ plan.U - V) ** 2))
    tally.size += float(np.sum(V**2))
    return ResultBlock(start, plan.U @ shrunk.T, sparse.csc_array(S), shrunk)
