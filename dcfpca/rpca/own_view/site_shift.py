"""How a site's features differ from those of all sites: another unit, another code, or columns in another order.

From medians and spreads that every run with closing rounds has; computed at the site, and told to nobody else. A site
whose unit differs throughout has its own centre and scale in its own view, so that nothing would be flagged.
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
MORE_OF_ONE_VALUE = 0.3
UNITS = {
    10.0: "another unit?", 100.0: "per cent?", 1000.0: "milli or kilo?", 1e6: "micro or mega?",
    18.02: "glucose in mg/dL or mmol/L?",
    88.4: "creatinine in µmol/L or mg/dL?", 38.67: "cholesterol in mg/dL or mmol/L?", 2.54: "inches or centimetres?",
    2.2046: "pounds or kilograms?", 7.5: "kPa or mmHg?",
}  # fmt: skip
NEAR = 0.08  # of a factor's logarithm
MIXED = 0.5  # of the features look like another one
MOST_NAMED = 8


@dataclass(frozen=True, slots=True, eq=False)
class Profile:
    """Features of all sites: median, spread, and the share of the most frequent value."""

    median: FloatArray
    spread: FloatArray
    one_value: FloatArray


def shift_notes(shared: Profile, M: FloatArray, names: Sequence[str] = ()) -> tuple[str, ...]:
    """A sentence for each feature of these columns (m × n) that differs; one alone where their order is mixed up."""
    if (order := mixed_order(shared, M)) is not None:
        moved = np.flatnonzero(order != np.arange(len(order)))[:3]
        pairs = [f"{feature_name(row, names)} looks like {feature_name(order[row], names)}" for row in moved]
        return (f"The features of this site seem to be in another order: {'; '.join(pairs)}.",)
    found = [note for row in range(len(M)) if (note := _note(shared, M, row))]
    told = [f"{feature_name(row, names)}: {text}" for row, text in found[:MOST_NAMED]]
    more = (f"{len(found) - MOST_NAMED} more features differ from those of all sites.",)
    return (*told, *(more if len(found) > MOST_NAMED else ()))


def mixed_order(shared: Profile, M: FloatArray) -> NDArray[np.intp] | None:
    """For each feature the one whose profile it fits, if most fit that of another far better; else None."""
    middle, width = margins(M)
    if M.shape[1] < FEWEST or few_values(M).mean() > MIXED:
        return None
    off = np.abs(middle[:, None] - shared.median) / shared.spread + np.abs(np.log(width[:, None] / shared.spread))
    if np.mean(np.diag(off) > FAR_MEDIAN) <= MIXED:  # then so few can fit another far better
        return None
    order = scipy.optimize.linear_sum_assignment(np.minimum(off, 10.0))[1]
    better = np.diag(off) > 2.0 * off[np.arange(len(order)), order] + FAR_MEDIAN
    return order if np.mean(better & (order != np.arange(len(order)))) > MIXED else None


def _note(shared: Profile, M: FloatArray, row: int) -> tuple[int, str] | None:
    """What differs in this feature, and the likely reason."""
    values = M[row, ~np.isnan(M[row])]
    if values.size < FEWEST:
        return None
    counts = np.unique(values, return_counts=True)[1]
    middle, width = (float(figure[0]) for figure in margins(values[None, :]))
    share, centre, spread = counts.max() / values.size, float(shared.median[row]), float(shared.spread[row])
    if share - shared.one_value[row] > MORE_OF_ONE_VALUE and share > MIXED:
        return row, f"{share:.0%} of the values here are one value, {shared.one_value[row]:.0%} over all sites: a code?"
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
    """The unit that explains it, where median and spread differ by the same known factor."""
    times = middle / centre if centre else 0.0
    if times <= 0.0 or abs(np.log(times / ratio)) > 4.0 * NEAR:
        return "."
    for factor, meaning in UNITS.items():
        if min(abs(np.log(times / factor)), abs(np.log(times * factor))) < NEAR:
            return f", both by a factor of about {max(times, 1.0 / times):.3g}: {meaning}"
    return ", both by the same factor: another unit?" if abs(np.log(times)) > np.log(2.0) else "."


def feature_name(row: int | np.intp, names: Sequence[str]) -> str:
    """How a sentence names it."""
    return names[int(row)] if names else f"Feature {row} (counted from 0)"
