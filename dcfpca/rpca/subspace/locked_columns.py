"""Columns and rows that the rounds left behind.

An entry whose residual lies beyond the threshold has no pull any more. A column or a row most of whose entries are
there (a threshold that fell faster than it converged leaves such) pulls on nothing and stays wherever it is: it is
locked, and to the rounds a locked run looks converged. It gives itself away by its outliers: more than half of its
entries. A column concerns nobody else, so the site frees it alone, by a robust projection onto the final subspace. A
row is a matter of U; the site can only say that it does not follow it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from dcfpca.rpca.method import FloatArray, Parcel, ResultBlock
from dcfpca.rpca.robust_projection import project
from dcfpca.rpca.subspace.settings import PLAN
from dcfpca.rpca.subspace.site import SubspaceSite
from dcfpca.rpca.thresholds import firm

HALF = 0.5
SUSPECT = 0.125  # fewer outliers than this share cannot be a majority, unless three quarters are missing
FEWEST = 8  # observed entries of a row or column of which a majority says something
NEGLIGIBLE = (
    1e-9  # of L's size: outliers so small tell of a threshold near rounding, not of a row or column left behind
)


class FreeingSite(SubspaceSite):
    """A site that frees its locked columns when it forms its result, and tells how many rows and columns stay apart."""

    def finish(self, broadcast: Parcel) -> Iterator[ResultBlock]:
        """The result of the rounds, with locked columns projected anew where that leaves fewer outliers."""
        flagged, before, after, apart = np.zeros(self._columns.shape[0]), 0, 0, 0
        least = NEGLIGIBLE * _size_of_entries(broadcast)
        for block in super().finish(broadcast):
            freed, left = self._freed(block, broadcast, least)
            flagged += np.bincount(freed.S.indices[np.abs(freed.S.data) > least], minlength=flagged.size)
            before, after, apart = before + block.S.nnz, after + freed.S.nnz, apart + left
            yield freed
        self._certificate["outlier_share"] *= after / before if before else 1.0
        self._certificate["rows_apart"] = float(self._rows_apart(flagged))
        self._certificate["columns_apart"] = float(apart)

    def _freed(self, block: ResultBlock, broadcast: Parcel, least: float) -> tuple[ResultBlock, int]:
        """The block with its locked columns projected onto the final subspace, and how many are left."""
        suspects = np.flatnonzero(np.diff(block.S.indptr) > SUSPECT * block.L.shape[0])
        if not suspects.size:
            return block, 0
        M = self._columns.read(block.start, block.start + block.L.shape[1])[:, suspects]
        locked = _majority(np.diff(block.S.indptr)[suspects], np.count_nonzero(~np.isnan(M), axis=0))
        if not locked.any():
            return block, 0
        freed = _projected(block, suspects[locked], M[:, locked], broadcast, self._settings.a)
        outliers = np.count_nonzero(np.abs(freed.S[:, suspects[locked]].toarray()) > least, axis=0)
        return freed, int(_majority(outliers, np.count_nonzero(~np.isnan(M[:, locked]), axis=0)).sum())

    def _rows_apart(self, flagged: FloatArray) -> int:
        """How many rows have most of their observed entries among the outliers."""
        suspects = np.flatnonzero(flagged > SUSPECT * self._columns.shape[1])
        if not suspects.size:
            return 0
        seen = [np.count_nonzero(~np.isnan(self._columns.read(*cut)[suspects]), axis=1) for cut in self._blocks]
        return int(_majority(flagged[suspects], np.sum(seen, axis=0)).sum())


def _size_of_entries(broadcast: Parcel) -> float:
    """About the root mean square of L's entries."""
    weights, values = np.split(broadcast.scalars[len(PLAN) :], 2)
    columns = broadcast.scalars[PLAN.index("columns")]
    return float(np.linalg.norm(weights * values) / np.sqrt(broadcast.tensor.shape[0] * max(columns, 1.0)))


def told_apart(certificate: Mapping[str, float], row: str = "row", column: str = "column") -> str:
    """What to add to an outcome where rows or columns do not follow the low-rank part; mostly nothing."""
    counts = {row: certificate.get("rows_apart", 0.0), column: certificate.get("columns_apart", 0.0)}
    told = [f"{count:.0f} {name}{'s' if count > 1 else ''}" for name, count in counts.items() if count]
    return f"; but most entries of {' and '.join(told)} are outliers: they are not explained" if told else ""


def _projected(block: ResultBlock, places: NDArray[np.intp], M: FloatArray, broadcast: Parcel, a: float) -> ResultBlock:
    """The block with these columns, whose data is M, projected anew; each only if that leaves it fewer outliers."""
    entering = np.split(broadcast.scalars[len(PLAN) :], 2)[0] > 0.0
    if not entering.any():
        return block
    U = broadcast.tensor[:, entering]
    coefficients = project(U, M).coefficients
    L = U @ coefficients.T
    S = firm(np.where(np.isnan(M), 0.0, M - L), float(broadcast.scalars[0]), a)
    better = np.count_nonzero(S, axis=0) < np.diff(block.S.indptr)[places]
    return _replaced(block, places[better], L[:, better], S[:, better], coefficients[better], entering)


def _replaced(
    block: ResultBlock,
    places: NDArray[np.intp],
    L: FloatArray,
    S: FloatArray,
    coefficients: FloatArray,
    entering: NDArray[np.bool_],
) -> ResultBlock:
    """The block with these columns in place of its own."""
    if not places.size:
        return block
    all_L, all_V, all_S = block.L.copy(), block.V.copy(), block.S.tolil()
    all_L[:, places], all_S[:, places] = L, S
    all_V[np.ix_(places, np.flatnonzero(entering))] = coefficients
    return ResultBlock(block.start, all_L, sparse.csc_array(all_S), all_V)


def _majority(outliers: NDArray[Any], observed: NDArray[Any]) -> NDArray[np.bool_]:
    """Which rows or columns have more than half of their observed entries, of enough, among the outliers."""
    said: NDArray[np.bool_] = (outliers > HALF * observed) & (observed >= FEWEST)
    return said
