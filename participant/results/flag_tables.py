"""The flags of a result as tables for people: one line for each flagged entry, one for each sample."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import scipy
from numpy.typing import NDArray

from dcfpca.rpca.method import ColumnScores, FloatArray
from dcfpca.rpca.refinement.null import two_sided

OUTLIERS, SAMPLES = "outliers.csv", "samples.csv"
SCHEMA = 1
"""Raised when a column of a table is added, removed or changes its meaning."""
OUTLIER_COLUMNS = ("id", "feature", "observed", "expected", "deviation", "z", "p_value")
SAMPLE_COLUMNS = ("id", "p_value", "flagged", "flagged_entries", "largest_z", "distance", "top_features")
TOP_FEATURES = 3


@dataclass(frozen=True, slots=True, eq=False)
class FlaggedResult:
    """What the tables are made from. `deviation` is the null's deviation of each feature, in the data's units."""

    L: FloatArray
    S: scipy.sparse.csc_array
    deviation: FloatArray
    scores: ColumnScores
    ids: Sequence[str]
    features: Sequence[str]
    rate: float  # samples below this false discovery rate are flagged


def write_flag_tables(target: Path, result: FlaggedResult) -> tuple[str, str]:
    """Write both tables, the most significant lines first; returns their names."""
    lines = sorted(_entries(result), key=lambda line: -abs(float(line[5])))
    _write(target / OUTLIERS, OUTLIER_COLUMNS, lines)
    _write(target / SAMPLES, SAMPLE_COLUMNS, _samples(result))
    return OUTLIERS, SAMPLES


def significant(p_values: FloatArray, rate: float) -> NDArray[np.bool_]:
    """Benjamini–Hochberg: which of these p-values are significant at this false discovery rate."""
    order = np.argsort(p_values)
    below = p_values[order] <= rate * np.arange(1, p_values.size + 1) / max(p_values.size, 1)
    last = int(np.flatnonzero(below)[-1]) if below.any() else -1
    found = np.zeros(p_values.size, dtype=bool)
    found[order[: last + 1]] = True
    return found


def _entries(result: FlaggedResult) -> Iterator[tuple[str, ...]]:
    places = scipy.sparse.coo_array(result.S)
    z = places.data / result.deviation[places.row]
    p = two_sided(z)
    at = zip(places.row.tolist(), places.col.tolist(), strict=True)
    for (row, column), off, score, chance in zip(at, places.data.tolist(), z, p, strict=True):
        expected = float(result.L[row, column])
        figures = (expected + off, expected, off, score, chance)
        yield (result.ids[column], _feature(result, row), *(f"{figure:.6g}" for figure in figures))


def _samples(result: FlaggedResult) -> Iterator[tuple[str, ...]]:
    scores, S = result.scores, scipy.sparse.csc_array(result.S)
    odd = significant(scores.p_value, result.rate)
    for column in np.argsort(scores.p_value, kind="stable"):
        rows = S.indices[S.indptr[column] : S.indptr[column + 1]]
        sizes = np.abs(S.data[S.indptr[column] : S.indptr[column + 1]]) / result.deviation[rows]
        top = rows[np.argsort(-sizes)[:TOP_FEATURES]]
        yield (
            result.ids[column],
            f"{scores.p_value[column]:.6g}",
            "yes" if odd[column] else "no",
            str(rows.size),
            f"{scores.largest_z[column]:.6g}",
            f"{scores.distance[column]:.6g}",
            "; ".join(_feature(result, int(row)) for row in top),
        )


def _feature(result: FlaggedResult, row: int) -> str:
    return result.features[row] if result.features else str(row)


def _write(path: Path, columns: Sequence[str], lines: Iterator[tuple[str, ...]] | list[tuple[str, ...]]) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(columns)
        writer.writerows(lines)
