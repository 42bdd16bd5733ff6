"""What each feature looks like, for the person who configures the site: kind, gaps, median, spread and range."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np

from dcfpca.rpca.method import Columns, FloatArray
from participant.data.matrix import Matrix

PROFILE_BYTES = 64 << 20
"""Of a larger matrix, evenly spaced samples are looked at."""
MOST_CODES = 12
DOMINANT_SHARE = 0.8

FeatureKind = Literal["empty", "constant", "binary", "codes", "dominated", "numeric"]
KIND_TEXTS: dict[FeatureKind, str] = {
    "empty": "no entries",
    "constant": "constant",
    "binary": "two values",
    "codes": "few whole numbers: codes?",
    "dominated": "one value in over 80 %",
    "numeric": "numeric",
}


@dataclass(frozen=True, slots=True)
class FeatureProfile:
    """One feature over the samples that were looked at; NaN where it has no entry."""

    name: str
    kind: FeatureKind
    missing_share: float
    median: float
    mad: float
    least: float
    greatest: float

    @property
    def carries_low_rank(self) -> bool:
        """Whether the feature varies enough to be explained by the others."""
        return self.kind not in ("empty", "constant", "dominated")


def profile_features(matrix: Matrix) -> Iterator[FeatureProfile]:
    """Every feature in order; those without a name are numbered from 0."""
    block = _sampled(matrix.columns)
    for row, values in enumerate(block):
        yield _profile(matrix.features[row] if matrix.features else str(row), values)


def _sampled(columns: Columns) -> FloatArray:
    rows, count = columns.shape
    most = max(1, PROFILE_BYTES // (8 * rows))
    if count <= most:
        return columns.read(0, count)
    starts = np.linspace(0, count - 1, min(most, 256)).astype(int)
    width = max(1, most // len(starts))
    return np.concatenate([columns.read(int(at), min(int(at) + width, count)) for at in starts], axis=1)


def _profile(name: str, values: FloatArray) -> FeatureProfile:
    there = values[~np.isnan(values)]
    missing = 1 - there.size / max(values.size, 1)
    if not there.size:
        return FeatureProfile(name, "empty", missing, *(4 * [float("nan")]))
    median = float(np.median(there))
    mad = float(np.median(np.abs(there - median)))
    return FeatureProfile(name, _kind(there), missing, median, mad, float(there.min()), float(there.max()))


def _kind(there: FloatArray) -> FeatureKind:
    values, counts = np.unique(there, return_counts=True)
    if values.size == 1:
        return "constant"
    if counts.max() > DOMINANT_SHARE * there.size:
        return "dominated"
    if values.size == 2:
        return "binary"
    few = values.size <= min(MOST_CODES, there.size // 5)
    return "codes" if few and bool((values == np.round(values)).all()) else "numeric"
