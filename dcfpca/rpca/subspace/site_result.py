"""The result of a site block by block, the figures of its certificate, and the rows and columns that it rejects because
more than half of their entries are outliers at the end.

An entry whose residual lies beyond the threshold has no influence on L. When the threshold falls faster than a column
or a row converges, most of its entries lose their influence and it no longer moves: it is locked, although the run
looks converged. A site repairs a locked column alone, by a robust projection onto the final subspace. A locked row
depends on U, which the site cannot change, so the site only reports it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy
from numpy.typing import NDArray

from dcfpca.rpca.kernels.compiled_loops import active_loops
from dcfpca.rpca.kernels.step_parameters import Coefficients, StepPlan
from dcfpca.rpca.method import Columns, FloatArray, ResultBlock
from dcfpca.rpca.robust_projection import most_agreeing, project
from dcfpca.rpca.subspace.round_plan import RoundPlan
from dcfpca.rpca.thresholds import firm

HALF = 0.5
SUSPECT = 0.125  # fewer outliers than this share cannot be a majority, unless three quarters are missing
FEWEST = 8  # observed entries of a row or column from which on a majority means something
NEGLIGIBLE = 1e-9  # of L's size: outliers this small mean a threshold near rounding, not a locked row or column


@dataclass(slots=True)
class CertificateSums:
    """Sums over a site's blocks for its certificate."""

    entries: int = 0
    outliers: int = 0
    missing: int = 0
    influence: float = 0.0
    drift: float = 0.0
    size: float = 0.0

    def result(
        self, fit: Coefficients, plan: StepPlan, U: FloatArray, M: FloatArray
    ) -> tuple[FloatArray, scipy.sparse.csc_array, FloatArray]:
        """L, S and the coefficients of L of one block, added to the sums."""
        shrunk = fit.V * plan.entering.weights
        L = U @ shrunk.T
        ends, rows, values, missing, squares = active_loops().outliers(M, L, plan.threshold, plan.a)
        drift = shrunk - fit.L
        self.drift += float(np.vdot(drift, drift))
        self.size += float(np.vdot(shrunk, shrunk))
        self.entries += L.size
        self.outliers += rows.size
        self.missing += missing
        self.influence += squares
        return L, scipy.sparse.csc_array((values, rows, ends), shape=L.shape), shrunk

    def figures(self) -> dict[str, float]:
        """Shares of outliers and missing entries, RMS of the residual, and the change of V in the last pass."""
        observed = max(self.entries - self.missing, 1)
        return {
            "outlier_share": self.outliers / observed,
            "missing_share": self.missing / max(self.entries, 1),
            "residual_rms": float(np.sqrt(self.influence / observed)),
            "stationarity": float(np.sqrt(self.drift / self.size)) if self.size > 0.0 else 0.0,
        }


@dataclass(slots=True, eq=False)
class UnexplainedSums:
    """Sums over a site's blocks: the numbers of rows and columns most of whose entries are outliers."""

    least: float  # smaller outliers are not counted
    flagged: FloatArray  # outliers by row
    columns: int = 0
    before: int = 0  # outliers before columns were freed …
    after: int = 0  # … and after

    @staticmethod
    def of(plan: RoundPlan) -> UnexplainedSums:
        """Nothing added yet."""
        return UnexplainedSums(least_outlier(plan), np.zeros(plan.U.shape[0]))

    def add(self, block: ResultBlock, freed: ResultBlock, columns: int) -> None:
        """Add a block before and after the repair of its columns, and the number of columns that stay unexplained."""
        S = freed.S
        self.flagged += np.bincount(S.indices[np.abs(S.data) > self.least], minlength=self.flagged.size)
        self.before += block.S.nnz
        self.after += S.nnz
        self.columns += columns

    def amended(self, figures: dict[str, float], data: Columns, cuts: Sequence[tuple[int, int]]) -> dict[str, float]:
        """The site's certificate: the figures of the rounds' result, with the freed columns and the counts added."""
        share = figures["outlier_share"] * (self.after / self.before if self.before else 1.0)
        least = SUSPECT if figures["missing_share"] else HALF
        apart = {"rows_apart": float(self._rows(data, cuts, least)), "columns_apart": float(self.columns)}
        return {**figures, "outlier_share": share, **apart}

    def _rows(self, data: Columns, cuts: Sequence[tuple[int, int]], least: float) -> int:
        """The number of rows most of whose observed entries, and at least this share of all, are outliers."""
        suspects = np.flatnonzero(self.flagged > least * data.shape[1])
        if not suspects.size:
            return 0
        seen = [np.count_nonzero(~np.isnan(data.read(*cut)[suspects]), axis=1) for cut in cuts]
        return int(_majority(self.flagged[suspects], np.sum(seen, axis=0)).sum())


def free_locked_columns(M: FloatArray, block: ResultBlock, plan: RoundPlan, a: float) -> tuple[ResultBlock, int]:
    """The block with its locked columns projected onto the final subspace, and the number that stay locked."""
    suspects = np.flatnonzero(np.diff(block.S.indptr) > SUSPECT * block.L.shape[0])
    if not suspects.size:
        return block, 0
    M = M[:, suspects]
    locked = _majority(np.diff(block.S.indptr)[suspects], np.count_nonzero(~np.isnan(M), axis=0))
    if not locked.any():
        return block, 0
    freed = _projected(block, suspects[locked], M[:, locked], plan, a)
    outliers = np.count_nonzero(np.abs(freed.S[:, suspects[locked]].toarray()) > least_outlier(plan), axis=0)
    return freed, int(_majority(outliers, np.count_nonzero(~np.isnan(M[:, locked]), axis=0)).sum())


def least_outlier(plan: RoundPlan) -> float:
    """The size below which an outlier is not counted against its row or column: a share of L's RMS entry."""
    size = np.linalg.norm(plan.weights * plan.values) / np.sqrt(plan.U.shape[0] * max(plan.columns, 1.0))
    return NEGLIGIBLE * float(size)


def unexplained_text(certificate: Mapping[str, float], row: str = "row", column: str = "column") -> str:
    """The sentence for rows or columns that do not follow the low-rank part; empty if there are none."""
    counts = {row: certificate.get("rows_apart", 0.0), column: certificate.get("columns_apart", 0.0)}
    groups = [f"{count:.0f} {name}{'s' if count > 1 else ''}" for name, count in counts.items() if count]
    return f"; but most entries of {' and '.join(groups)} are outliers: they are not explained" if groups else ""


def _projected(block: ResultBlock, places: NDArray[np.intp], M: FloatArray, plan: RoundPlan, a: float) -> ResultBlock:
    """The block with these columns, whose data is M, projected again where that leaves them fewer outliers. Where most
    entries are outliers even so, those that agree with some of them tell."""
    entering = plan.entering
    if not entering.size:
        return block
    U = plan.U[:, entering]
    coefficients = project(U, M).coefficients
    off = np.abs(np.where(np.isnan(M), 0.0, M - U @ coefficients.T)) > plan.threshold
    hard = _majority(off.sum(axis=0), np.count_nonzero(~np.isnan(M), axis=0))
    coefficients[hard] = most_agreeing(U, M[:, hard], plan.threshold, coefficients[hard])
    L = U @ coefficients.T
    S = firm(np.where(np.isnan(M), 0.0, M - L), plan.threshold, a)
    better = np.count_nonzero(S, axis=0) < np.diff(block.S.indptr)[places]
    return _replaced(block, places[better], L[:, better], S[:, better], coefficients[better], entering)


def _replaced(
    block: ResultBlock,
    places: NDArray[np.intp],
    L: FloatArray,
    S: FloatArray,
    coefficients: FloatArray,
    entering: NDArray[np.intp],
) -> ResultBlock:
    """The block with these columns in place of its own."""
    if not places.size:
        return block
    all_L, all_V, all_S = block.L.copy(), block.V.copy(), block.S.tolil()
    all_L[:, places], all_S[:, places] = L, S
    all_V[np.ix_(places, entering)] = coefficients
    return ResultBlock(block.start, all_L, scipy.sparse.csc_array(all_S), all_V)


def _majority(outliers: NDArray[Any], observed: NDArray[Any]) -> NDArray[np.bool_]:
    """Flags the rows or columns with FEWEST observed entries or more, over half of which are outliers."""
    said: NDArray[np.bool_] = (outliers > HALF * observed) & (observed >= FEWEST)
    return said
