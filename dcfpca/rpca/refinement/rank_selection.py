"""The rank that predicts hidden entries: error sums by rank, and the smallest that is nearly as good as the best."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dcfpca.rpca.method import FloatArray
from dcfpca.rpca.refinement.column_fit import ColumnModel, fit_columns

CAP = 3.0  # an error larger than so many spreads counts as this: a hidden entry may be an outlier itself
NEAR = 5.0  # a hidden entry further from its feature's median, in spreads, is an outlier itself, and not judged
MARGIN = 1.05  # with many hidden entries standard errors are small, and directions that hardly help significant
EVERY = 8  # up to this rank all ranks are tried, above every step of half


def ranks_tried(width: int) -> tuple[int, ...]:
    """0 (each feature's median), then the ranks whose errors are summed, up to the width."""
    ranks = list(range(min(width, EVERY) + 1))
    while ranks[-1] < width:
        ranks.append(min(width, ranks[-1] + max(1, ranks[-1] // 4)))
    return tuple(ranks)


def judged_entries(
    M: FloatArray, hidden: NDArray[np.bool_], median: FloatArray, spread: FloatArray
) -> NDArray[np.bool_]:
    """The hidden entries whose prediction is judged: by the data alone, so that all ranks are judged on the same."""
    near: NDArray[np.bool_] = np.abs(M - median[:, None]) <= NEAR * spread[:, None]
    return hidden & near


def column_errors(M: FloatArray, prediction: FloatArray, hidden: NDArray[np.bool_], spread: FloatArray) -> FloatArray:
    """Each column's sum of capped errors over its hidden entries, in units of the features' spreads."""
    errors = np.minimum(np.abs(M - prediction) / spread[:, None], CAP)
    return np.asarray(np.where(hidden, errors, 0.0).sum(axis=0))


def errors_by_rank(
    model: ColumnModel, median: FloatArray, M: FloatArray, hidden: NDArray[np.bool_], spread: FloatArray
) -> FloatArray:
    """`column_errors` of every rank tried (ranks × columns), the hidden entries taking no part in the fit."""
    shown = np.where(hidden, np.nan, M)
    rows = [column_errors(M, median[:, None], hidden, spread)]
    for rank in ranks_tried(model.U.shape[1])[1:]:
        leading = model.leading(rank)
        rows.append(column_errors(M, leading.low_rank(fit_columns(leading, shown, None)), hidden, spread))
    return np.stack(rows)


def validation_sums(errors: FloatArray, counts: FloatArray) -> FloatArray:
    """What of columns is summed: counts, their squares, then errors, their squares and products with counts."""
    sums = [np.array([counts.sum(), np.sum(counts**2)])]
    sums += [errors.sum(axis=1), np.sum(errors**2, axis=1), errors @ counts]
    return np.concatenate(sums)


@dataclass(frozen=True, slots=True, eq=False)
class RankCurve:
    """Error of the hidden entries by rank, relative to that of the features' medians, with standard errors."""

    ranks: tuple[int, ...]
    error: FloatArray
    standard_error: FloatArray

    @staticmethod
    def of(ranks: tuple[int, ...], sums: FloatArray) -> RankCurve:
        """From the sum of `validation_sums` over sites; standard errors by columns, whose entries belong together."""
        count, squares, *_ = sums
        total, products, crossed = np.split(sums[2:], 3)
        mean = total / max(count, 1e-300)
        variance = np.maximum(products - 2.0 * mean * crossed + mean**2 * squares, 0.0)
        base = max(float(total[0]), np.finfo(np.float64).tiny)
        return RankCurve(ranks, total / base, np.sqrt(variance) / base)

    def chosen(self) -> int:
        """The smallest rank whose error is within one standard error, and a twentieth, of the least."""
        least = int(np.argmin(self.error))
        good = self.error <= MARGIN * self.error[least] + self.standard_error[least]
        return self.ranks[int(np.flatnonzero(good)[0])]

    def of_one(self, rank: int) -> RankCurve:
        """No rank, and this one: all that a fit without a choice of ranks tells of, which repeats its own error."""
        if rank == 0:
            return RankCurve((0,), self.error[:1], self.standard_error[:1])
        place = next(place for place, tried in enumerate(self.ranks) if tried >= rank)
        return RankCurve((0, rank), self.error[[0, place]], self.standard_error[[0, place]])

    def predicted(self, rank: int) -> float:
        """The share of the hidden entries' spread that this rank predicts; negative where it is worse than medians."""
        places = [place for place, tried in enumerate(self.ranks) if tried >= rank]
        return float(1.0 - self.error[places[0]]) if places else float("nan")
