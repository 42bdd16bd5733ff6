"""Rules of a site beside the model, few and plain: codes that mean missing, ranges, codes, signs, ordered pairs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

import numpy as np

from dcfpca.errors import BadInput, did_you_mean
from dcfpca.rpca.column_blocks import blocks
from dcfpca.rpca.method import Columns, FloatArray
from participant.data.data_config import Numbers, RulesTable

if TYPE_CHECKING:
    from participant.data.matrix import Matrix


@dataclass(frozen=True, slots=True)
class Breach:
    """A value that breaks a rule; `column` is the position of its sample."""

    column: int
    feature: str
    observed: float
    rule: str


def _check(rules: RulesTable, features: Sequence[str], origin: str) -> None:
    """BadInput names a feature that the data does not have: a rule about it would never be broken."""
    named = [
        *rules.missing,
        *rules.range,
        *rules.codes,
        *rules.non_negative,
        *(one for pair in rules.ordered for one in pair),
    ]
    for pattern in named:
        if not any(fnmatchcase(name, pattern) for name in features):
            hint = did_you_mean(pattern, features) or "correct the name there, or take the rule out"
            raise BadInput(f"the data {origin} has no feature {pattern}, which [rules] names", hint)


def without_codes(matrix: Matrix, rules: RulesTable, origin: str) -> Matrix:
    """The matrix in which codes that mean missing are NaN, with a note that counts them."""
    if rules == RulesTable():
        return matrix
    _check(rules, matrix.features, origin)
    codes = {
        row: np.array([code for one, own in rules.missing.items() if fnmatchcase(name, one) for code in own])
        for row, name in enumerate(matrix.features)
    }
    codes = {row: own for row, own in codes.items() if own.size}
    if not codes:
        return replace(matrix, rules=rules)
    counts = _counted(matrix.columns, codes)
    said = ", ".join(f"{matrix.features[row]} ({count})" for row, count in counts.items() if count)
    notes = (*matrix.notes, f"codes that mean missing, by [rules]: {said}") if said else matrix.notes
    return replace(matrix, columns=DecodedColumns(matrix.columns, codes), rules=rules, notes=notes)


def _counted(columns: Columns, codes: Mapping[int, FloatArray]) -> dict[int, int]:
    counts = dict.fromkeys(codes, 0)
    for start, stop in blocks(columns):
        block = columns.read(start, stop)
        for row, own in codes.items():
            counts[row] += int(np.count_nonzero(np.isin(block[row], own)))
    return counts


@dataclass(frozen=True, slots=True, eq=False)
class DecodedColumns:
    """Columns in which the codes of some features are NaN."""

    columns: Columns
    codes: Mapping[int, FloatArray]

    @property
    def shape(self) -> tuple[int, int]:
        """(m, n_i)."""
        return self.columns.shape

    @property
    def chunk_width(self) -> int:
        """As below."""
        return int(getattr(self.columns, "chunk_width", 0))

    def read(self, start: int, stop: int) -> FloatArray:
        """Columns start … stop − 1."""
        block = np.array(self.columns.read(start, stop), dtype=np.float64)
        for row, own in self.codes.items():
            block[row, np.isin(block[row], own)] = np.nan
        return block


def breaches(columns: Columns, features: Sequence[str], rules: RulesTable) -> Iterator[Breach]:
    """Every value that breaks a rule, block by block."""
    tests = list(_tests(features, rules))
    for start, stop in blocks(columns) if tests else ():
        block = columns.read(start, stop)
        for row, other, least, most, allowed, words in tests:
            values = block[row]
            bad = (values < least) | (values > (most if other < 0 else block[other]))
            bad |= ~np.isin(values, allowed) & ~np.isnan(values) if allowed else False
            for place in np.flatnonzero(bad):
                yield Breach(start + int(place), features[row], float(values[place]), words)


def _tests(features: Sequence[str], rules: RulesTable) -> Iterator[tuple[int, int, float, float, Numbers, str]]:
    """Feature, the feature that it may not exceed (−1: none), least, greatest, the only values, and the words."""
    for row, name in enumerate(features):
        for pattern, (least, most) in rules.range.items():
            if fnmatchcase(name, pattern):
                yield row, -1, least, most, (), f"outside {least:g} … {most:g}"
        for pattern, codes in rules.codes.items():
            if fnmatchcase(name, pattern):
                yield row, -1, -np.inf, np.inf, codes, f"none of {', '.join(f'{code:g}' for code in codes)}"
        if any(fnmatchcase(name, pattern) for pattern in rules.non_negative):
            yield row, -1, 0.0, np.inf, (), "negative"
        for low, high in rules.ordered:
            if name == low and high in features:
                yield row, list(features).index(high), -np.inf, np.inf, (), f"above {high}"
