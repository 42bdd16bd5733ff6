"""How a site's features differ from those of all sites: another unit, another code, or columns in another order.

It uses the medians and spreads that every run with closing rounds has, is computed at the site, and goes to nobody
else. A site with another unit throughout has its own centre and scale in its own view, so that nothing would be
flagged.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import scipy
from numpy.typing import NDArray

from dcfpca.rpca.method import FloatArray
from dcfpca.rpca.own_view.own_model import margins
from dcfpca.rpca.own_view.own_view import few_values

FEWEST = 10  # entries of a feature
FAR_MEDIAN = 1.0  # spreads
WIDER, NARROWER = 2.0, 0.5
SURE = 3.0  # standard errors beyond
MORE_OF_ONE_VALUE = 0.3  # of the entries, as of gaps
FAR_OFF = 10.0
UNITS = {
    10.0: "another unit?", 100.0: "per cent?", 1000.0: "milli or kilo?", 1e6: "micro or mega?",
    18.02: "glucose in mg/dL or mmol/L?",
    88.4: "creatinine in µmol/L or mg/dL?", 38.67: "cholesterol in mg/dL or mmol/L?", 2.54: "inches or centimetres?",
    2.2046: "pounds or kilograms?", 7.5: "kPa or mmHg?",
}  # fmt: skip
NEAR = 0.12  # of a factor's logarithm
LIKE = (0.5, 1.5)  # the spread's logarithm over that of the median
MIXED = 0.5  # of the features look like another one
MOST_MATCHED = 2000  # features, the first ones, that are compared with each other: a table of all pairs
MOST_NAMED = 8


@dataclass(frozen=True, slots=True, eq=False)
class Profile:
    """Features of all sites: median, spread, the shares of the most frequent value and of gaps; NaN: unknown."""

    median: FloatArray
    spread: FloatArray
    one_value: FloatArray
    gaps: FloatArray

    @staticmethod
    def of_units(centre: FloatArray, scale: FloatArray) -> Profile:
        """As a run knows them before its fit: a scale of 1 stands for features without one."""
        unknown = np.full(len(scale), np.nan)
        return Profile(centre, np.where(scale == 1.0, np.nan, scale), unknown, unknown)

    def first(self, most: int) -> Profile:
        """Of the first features alone."""
        return Profile(self.median[:most], self.spread[:most], self.one_value[:most], self.gaps[:most])

    def with_units(self, units: Profile) -> Profile:
        """Median and spread of `units` where it has them."""
        there = ~np.isnan(units.spread)
        median = np.where(there, units.median, self.median)
        return Profile(median, np.where(there, units.spread, self.spread), self.one_value, self.gaps)


def shift_notes(shared: Profile, M: FloatArray, names: Sequence[str] = ()) -> tuple[str, ...]:
    """A sentence for each feature of these columns (m × n) that differs; a single one where their order is mixed up."""
    if (order := mixed_order(shared, M)) is not None:
        moved = np.flatnonzero(order != np.arange(len(order)))[:3]
        pairs = [f"{feature_name(row, names)} looks like {feature_name(order[row], names)}" for row in moved]
        return (f"The features of this site seem to be in another order: {'; '.join(pairs)}.",)
    found = [note for row in _suspected(shared, M) if (note := _note(shared, M, row))]
    shown = [f"{feature_name(row, names)}: {text}" for row, text in found[:MOST_NAMED]]
    more = (f"{len(found) - MOST_NAMED} more features differ from those of all sites.",)
    return (*shown, *(more if len(found) > MOST_NAMED else ()))


def mixed_order(shared: Profile, M: FloatArray) -> NDArray[np.intp] | None:
    """For each feature the one whose profile it fits, if most features fit another's profile far better; else None."""
    shared, M = shared.first(MOST_MATCHED), M[:MOST_MATCHED]
    middle, width = margins(M)
    known = (np.count_nonzero(~np.isnan(M), axis=1) >= FEWEST) & ~np.isnan(shared.spread)
    own = np.where(known, np.minimum(_distance(middle, width, shared), FAR_OFF), 0.0)  # unknown ones stay in place
    # If most fit their own profile, too few can fit another far better.
    if not known.any() or np.mean(own[known] > FAR_MEDIAN) <= MIXED or few_values(M).mean() > MIXED:
        return None
    off = np.minimum(_distance(middle[:, None], width[:, None], shared), FAR_OFF)
    off = np.where(known[:, None] & known, off, FAR_OFF)
    np.fill_diagonal(off, own)
    order = scipy.optimize.linear_sum_assignment(off)[1]
    better = own > 2.0 * off[np.arange(len(order)), order] + FAR_MEDIAN
    return order if np.mean((better & (order != np.arange(len(order))))[known]) > MIXED else None


def _distance(middle: FloatArray, width: FloatArray, shared: Profile) -> FloatArray:
    """How far a median and a spread are from those of all sites."""
    return np.asarray(np.abs(middle - shared.median) / shared.spread + np.abs(np.log(width / shared.spread)))


def _suspected(shared: Profile, M: FloatArray) -> NDArray[np.intp]:
    """The features that may differ, found for all at once; if most entries have one value, it is the median."""
    middle, width = margins(M)
    off, ratio = np.abs(middle - shared.median) / shared.spread, width / shared.spread
    entries = np.maximum(np.count_nonzero(~np.isnan(M), axis=1), 1)
    one_value = np.count_nonzero(middle[:, None] == M, axis=1) / entries
    code = (one_value > MIXED) & (one_value - shared.one_value > MORE_OF_ONE_VALUE)
    gaps = np.isnan(M).mean(axis=1) - shared.gaps > MORE_OF_ONE_VALUE
    varies = (off > FAR_MEDIAN) | (ratio > WIDER) | (ratio < NARROWER)
    return np.flatnonzero(gaps | code | (varies & (one_value <= MIXED)))


def _note(shared: Profile, M: FloatArray, row: int) -> tuple[int, str] | None:
    """What differs in this feature, and the likely reason."""
    values = M[row, ~np.isnan(M[row])]
    if values.size < FEWEST:
        return None
    gaps = 1.0 - values.size / M.shape[1]
    if gaps - shared.gaps[row] > MORE_OF_ONE_VALUE:
        return row, f"{gaps:.0%} of the values here are missing, {shared.gaps[row]:.0%} over all sites."
    levels, counts = np.unique(values, return_counts=True)
    middle, width = (float(figure[0]) for figure in margins(values[None, :]))
    share, centre, spread = counts.max() / values.size, float(shared.median[row]), float(shared.spread[row])
    if share - shared.one_value[row] > MORE_OF_ONE_VALUE and share > MIXED:
        value = f"{share:.0%} of the values here are {levels[counts.argmax()]:.6g}"
        return row, f"{value}, at most {shared.one_value[row]:.0%} are one value over all sites: a code?"
    error = 1.25 / np.sqrt(values.size)
    off, ratio = (middle - centre) / spread, width / spread
    far = abs(off) > FAR_MEDIAN + SURE * error * max(ratio, 1.0)
    wide = ratio > WIDER * np.exp(SURE * error) or ratio < NARROWER * np.exp(-SURE * error)
    if share > MIXED or not (far or wide):
        return None
    side = f"the median here lies {abs(off):.1f} spreads {'above' if off > 0 else 'below'} that of all sites"
    spread_text = f"the spread is {ratio:.2g} times that of all sites"
    return row, "; ".join([*([side] if far else []), *([spread_text] if wide else [])]) + _unit(middle, centre, ratio)


def _unit(middle: float, centre: float, ratio: float) -> str:
    """The unit that explains it, where median and spread differ by like factors. This site is one of all: among few
    sites it has itself moved the common median by a few per cent, and the spread by more."""
    times = middle / centre if centre else 0.0
    if times <= 0.0 or not LIKE[0] <= np.log(ratio) / (np.log(times) or np.inf) <= LIKE[1]:
        return "."
    off = {meaning: abs(abs(np.log(times)) - np.log(factor)) for factor, meaning in UNITS.items()}
    meaning = min(off, key=lambda one: off[one])
    if off[meaning] < NEAR:
        return f", median and spread by similar factors, about {max(times, 1.0 / times):.3g}: {meaning}"
    return ", both by similar factors: another unit?" if abs(np.log(times)) > np.log(2.0) else "."


def feature_name(row: int | np.intp, names: Sequence[str]) -> str:
    """How a sentence names it."""
    return names[int(row)] if names else f"Feature {row} (counted from 0)"
