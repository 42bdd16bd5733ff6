"""Numbers as people write them: with so many decimals, digits the wrong way round, or in another unit. Pure."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from dcfpca.rpca.method import FloatArray

MOST_DIGITS, LONG = 8, 7
"""Digits of numbers that people type; numbers with LONG decimals come from a computation."""
CONVERTED_SO = 0.2
"""How often a converted value is written with just so many decimals."""


@dataclass(frozen=True, slots=True, eq=False)
class WrittenFeature:
    """What the values of a feature that are not flagged look like, by the digits that they are written with."""

    decimals: Counter[int]  # how many values are written with so many
    least: float
    counts: Counter[float]
    total: int
    deviation: float

    @property
    def places(self) -> int:
        """The decimals that nearly all values can be written with."""
        for places in range(LONG):
            if sum(self.decimals[k] for k in range(places + 1)) >= 0.98 * self.total:
                return places
        return LONG

    def mass(self, value: float) -> float:
        """The share of a deviation that this value stands for: small if it has digits as few others have."""
        places = decimals(value)
        usual = (self.decimals[places] + 0.5) / (self.total + 1.0)
        return min(usual * 10.0**-places / self.deviation, 1.0)

    def mass_converted(self, meant: float, factor: float, offset: float, found: float) -> float:
        """The same for values that give `found` in another unit; 0 if none of those that can be written here does."""
        unit, places = 10.0 ** -decimals(found), self.places
        off = abs(factor * round(meant, places) + offset - found)
        fits = off <= 0.5 * unit + 1e-9 * abs(found)
        width = max(unit / factor, 10.0**-places if fits and places < LONG else 0.0)
        if not fits and unit < factor * 10.0**-places:
            return 0.0
        return min(CONVERTED_SO * width / self.deviation, 1.0)

    def share(self, value: float) -> float:
        """The share of its entries that have exactly this value."""
        return self.counts[value] / max(self.total, 1)


def transposed(x: float) -> Iterator[float]:
    """The numbers that differ from x by two neighbouring digits that changed places; none for a long one."""
    text = np.format_float_positional(abs(x), trim="-")
    digits = [k for k, letter in enumerate(text) if letter.isdigit()]
    if len(digits) > MOST_DIGITS:
        return
    for a, b in pairwise(digits):
        if text[a] != text[b]:
            swapped = list(text)
            swapped[a], swapped[b] = text[b], text[a]
            yield math.copysign(float("".join(swapped)), x)


def decimals(x: float) -> int:
    """How many x is written with, at most LONG."""
    return min(len(np.format_float_positional(abs(x), trim="-").partition(".")[2]), LONG)


def feature_of(values: FloatArray, deviation: float) -> WrittenFeature:
    """From its values, and one deviation of them."""
    counts = Counter(values.tolist())
    written = Counter({0: 0})
    for value, count in counts.items():
        written[decimals(value)] += count
    return WrittenFeature(written, float(values.min(initial=math.inf)), counts, values.size, max(deviation, 1e-300))
