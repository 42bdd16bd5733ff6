"""What is found out about the matrix, in passes over column blocks: facts for the review of a spec, the part that a run
uses, and what each feature looks like to the person who configures the site."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import numpy as np

from dcfpca.errors import BadInput
from dcfpca.rpca.column_blocks import blocks, check_magnitude, largest_magnitude
from dcfpca.rpca.method import Columns, FloatArray
from dcfpca.secagg.column_sets import ColumnHasher
from participant.data.layout import first_of_each_person
from participant.data.matrix import Matrix, keep_samples, select_features

SCAN_BYTES = 8 << 20
CODES = (9999.0, 999.0, 99.0, 99999.0, -1.0, -9.0, -99.0, -999.0, -9999.0, 0.0)
"""What people write for missing."""


@dataclass(frozen=True, slots=True)
class DataFacts:
    """Size without the samples that have no entry, which are listed; missing entries.

    `entries` counts those of each feature, where any is missing.
    """

    rows: int
    columns: int
    missing: int
    empty: tuple[int, ...] = ()
    entries: tuple[int, ...] = ()


def measure(columns: Columns, path: Path | str, hasher: ColumnHasher | None = None) -> DataFacts:
    """Count missing entries and empty samples, and refuse what no method can use: infinite entries, magnitudes that
    cannot be squared, and a matrix without any entry. `hasher` is shown every block, so that one pass is enough."""
    rows, count = columns.shape
    missing, largest = 0, 0.0
    empty: list[int] = []
    entries = np.zeros(rows, np.int64)
    for start, stop in blocks(columns, SCAN_BYTES):
        block = columns.read(start, stop)
        if np.isinf(block).any():
            row, column = (int(place) for place in np.argwhere(np.isinf(block))[0])
            where = f"sample {start + column}, feature {row} (both counted from 0)"
            hint = "replace infinite entries by NaN, which counts as unobserved, or by their values"
            raise BadInput(f"the data {path} has an infinite entry in {where}", hint)
        absent = np.isnan(block)
        empty += (start + np.flatnonzero(absent.all(axis=0))).tolist()
        missing += int(np.count_nonzero(absent))
        entries += np.count_nonzero(~absent, axis=1)
        largest = max(largest, largest_magnitude(block))
        if hasher is not None:
            hasher.add(block)
    if len(empty) == count:
        raise BadInput(f"the data {path} has no entry at all", "check its format and [data] missing_markers")
    check_magnitude(largest, f"the data {path}")
    missing -= rows * len(empty)
    counted = tuple(entries.tolist()) if missing else ()
    return DataFacts(rows, count - len(empty), missing, tuple(empty), counted)


def without_empty_samples(matrix: Matrix, facts: DataFacts) -> Matrix:
    """The matrix without the samples that have no entry."""
    if not facts.empty:
        return matrix
    return keep_samples(matrix, np.setdiff1d(np.arange(matrix.columns.shape[1]), facts.empty))


@dataclass(slots=True)
class MatrixParts:
    """Parts by the features that specs name, with the samples that have any of them; found in one pass each, once."""

    matrix: Matrix
    has_missing: bool
    _found: dict[tuple[tuple[str, ...], bool], Matrix] = field(default_factory=dict)
    _persons: dict[tuple[str, ...], Matrix] = field(default_factory=dict)

    def part(self, features: tuple[str, ...], origin: str, *, may_lack: bool = False) -> Matrix:
        """The part with these features, all if there are none; BadInput names those that the data lacks.

        With `may_lack` the features that the data lacks are unobserved.
        """
        key = features, may_lack
        if key not in self._found:
            chosen = select_features(self.matrix, features, origin, may_lack=may_lack)
            if self.has_missing and chosen is not self.matrix:
                chosen = without_empty_samples(chosen, measure(chosen.columns, origin))
            self._found[key] = chosen
        return self._found[key]

    def one_per_person(self, features: tuple[str, ...], origin: str) -> Matrix:
        """The part with these features, of each person the first sample alone; all where no person has several."""
        if features not in self._persons:
            part = self.part(features, origin)
            self._persons[features] = keep_samples(part, first_of_each_person(part)) if part.persons else part
        return self._persons[features]


MANY_TIMES = 10
"""A matrix with this many times more rows than columns is doubtful if its row names look like identifiers."""
MOST = 0.9
"""The share of names that must look like identifiers."""

_IDENTIFIER = re.compile(
    r"[a-z]{0,12}[ _.:#/-]?[0-9]{2,}[a-z]?"  # 10023, P0042, patient-17
    r"|[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}"  # a UUID
    r"|[^@\s]+@[^@\s]+",  # an e-mail address
    re.ASCII | re.IGNORECASE,
)


def orientation_doubt(rows: int, columns: int, features: Sequence[str]) -> str:
    """One sentence when rows look like persons, not features; empty when they do not, or have no names.

    Every participant receives U, which has one line for each row: if the rows are persons, a score for each of them.
    """
    if rows < MANY_TIMES * columns or not features:
        return ""
    named_alike = sum(_IDENTIFIER.fullmatch(name) is not None for name in features)
    if named_alike < MOST * len(features):
        return ""
    return f"there are {rows} features and only {columns} samples, and the features are named like records"


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
    sentinels: tuple[float, ...] = ()
    """Values that look like codes for missing: known ones, far beyond all others."""
    least_but_sentinels: float = float("nan")
    values: tuple[float, ...] = ()
    """All of them, where there are two."""

    @property
    def carries_low_rank(self) -> bool:
        """Whether the feature varies enough to be explained by the others."""
        return self.kind not in ("empty", "constant", "dominated")


def profile_features(matrix: Matrix, looked_at: FloatArray | None = None) -> Iterator[FeatureProfile]:
    """Every feature in order, by these samples; those without a name are numbered from 0."""
    for row, values in enumerate(sampled(matrix.columns) if looked_at is None else looked_at):
        yield _profile(matrix.features[row] if matrix.features else str(row), values)


def sampled(columns: Columns) -> FloatArray:
    """All samples, or of a large matrix some that are evenly spaced."""
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
        return FeatureProfile(name, "empty", missing, np.nan, np.nan, np.nan, np.nan)
    median = float(np.median(there))
    mad = float(np.median(np.abs(there - median)))
    kind, sentinels = _kind(there), _sentinels(there)
    rest = there[~np.isin(there, sentinels)]
    two = tuple(np.unique(there).tolist()) if kind == "binary" else ()
    ends = float(there.min()), float(there.max())
    return FeatureProfile(name, kind, missing, median, mad, *ends, sentinels, float(rest.min(initial=np.inf)), two)


def _sentinels(there: FloatArray) -> tuple[float, ...]:
    """Codes that people write for missing, where all other values lie together and at least their width away; a
    negative one also where no other value is negative."""
    codes = np.intersect1d(there, [code for code in CODES if code])
    rest = there[~np.isin(there, codes)]
    if not rest.size or codes.size > 2:
        return ()
    least, most = float(rest.min()), float(rest.max())
    far = (codes > most + (most - least)) | (codes < least - (most - least)) | ((codes < 0) & (least >= 0))
    return tuple(codes[far].tolist())


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
